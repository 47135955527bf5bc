import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from "react";
import { type Login, session } from "../api/client.ts";
import { findLogin, mayChange, signOut } from "../api/login.ts";
import { SignIn } from "./sign-in.tsx";

interface Session {
  login: Login;
  mayChange: boolean;
  end: () => Promise<void>;
}

const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const found = useContext(SessionContext);
  if (found === null) throw new Error("useSession is for pages inside of a SessionProvider.");
  return found;
}

/** Show the sign-in form until there is a session, then the children. */
export function SessionProvider({ children }: { children: ReactNode }) {
  const [login, setLogin] = useState<Login | null>();
  const [notice, setNotice] = useState("");

  useEffect(() => {
    findLogin().then(setLogin, (problem: Error) => {
      setNotice(problem.message);
      setLogin(null);
    });
  }, []);

  useEffect(() => {
    const signedOut = () => {
      setLogin((was) => {
        if (was)
          setNotice("Your session has ended: it expired after twelve hours, or the API key was revoked.");
        return null;
      });
    };
    session.addEventListener("signed-out", signedOut);
    return () => session.removeEventListener("signed-out", signedOut);
  }, []);

  const value = useMemo(
    () =>
      login && {
        login,
        mayChange: mayChange(login),
        end: async () => {
          setNotice("");
          setLogin(null);
          await signOut();
        },
      },
    [login],
  );

  if (value === undefined) return null;
  if (value === null) return <SignIn notice={notice} signedIn={setLogin} />;
  return <SessionContext value={value}>{children}</SessionContext>;
}
