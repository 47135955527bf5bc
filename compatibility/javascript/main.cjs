// Tries the SDK in NODE_PATH; arguments are prefixes of methods to try.
const { runAll } = require("./harness.cjs");
const { publicMethods } = require("./methods.cjs");

require("./sandboxes.cjs");
require("./work.cjs");
require("./keeping.cjs");
require("./templates.cjs");

const beginnings = process.argv.slice(2);
const isWanted = (method) => !beginnings.length || beginnings.some((one) => method.startsWith(one));
runAll(publicMethods().filter(isWanted)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
