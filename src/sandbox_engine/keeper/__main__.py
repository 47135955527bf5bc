from sandbox_engine.keeper.process import main

main()
