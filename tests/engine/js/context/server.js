require("node:http")
  .createServer((_, answer) => answer.end(require("./lib/greeting")))
  .listen(8000);
