import type { ComponentProps } from "react";

const KINDS = {
  plain: "border-line bg-card hover:bg-shade",
  main: "border-accent bg-accent text-on-accent hover:brightness-110",
  danger: "border-line bg-card text-bad hover:bg-shade",
  quiet: "border-transparent text-faint hover:bg-shade hover:text-text",
};

interface ButtonProps extends ComponentProps<"button"> {
  kind?: keyof typeof KINDS;
}

export function Button({ kind = "plain", className = "", type = "button", ...rest }: ButtonProps) {
  const look = "inline-flex items-center gap-1.5 rounded-md border px-3 py-1 font-medium whitespace-nowrap";
  return <button type={type} className={`${look} ${KINDS[kind]} ${className}`} {...rest} />;
}
