module.exports = "hello from a template";
