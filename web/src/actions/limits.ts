/** Properties of a button whose action the caller's key may or may not carry out. */
export function limitsOf(mayChange: boolean): { disabled?: boolean; title?: string } {
  return mayChange
    ? {}
    : { disabled: true, title: "Your API key may only read: it lacks the scope `sandboxes`." };
}
