/** Copy a text; browsers offer their clipboard to scripts only with TLS and on localhost. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "fixed -left-full";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
