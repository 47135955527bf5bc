import { Link } from "@tanstack/react-router";

export function NotFound() {
  return (
    <div className="p-8 text-center">
      <h1 className="text-lg font-semibold">There is no such page</h1>
      <p className="mt-2">
        <Link to="/">Go to the sandboxes</Link>
      </p>
    </div>
  );
}
