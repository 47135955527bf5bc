import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.SANDBOX_SERVER_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "./",
  plugins: [react(), tailwindcss()],
  build: {
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    manifest: true,
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: { "^/(v1|docs|healthz|readyz|version)": { target: server, ws: true } } },
});
