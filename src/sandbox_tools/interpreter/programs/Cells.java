import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;

/**
 * Runs cells in one JShell, inside this process, so that System.out is our stdout. A request is two fields that end
 * with NUL: a marker, which is written to stdout and stderr when the cell has ended, and the code. Events are JSON
 * lines. Arguments: descriptors of requests, events and interrupts.
 */
public final class Cells {
    private static final int LONGEST_TEXT = 10_000_000;
    private static final List<String> IMPORTS = List.of(
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*",
        "java.util.function.*", "java.util.regex.*", "java.util.stream.*");

    private final JShell shell;
    private final FileOutputStream events;
    private volatile boolean isInterrupted;

    private Cells(String descriptor) throws IOException {
        events = new FileOutputStream("/proc/self/fd/" + descriptor);
        shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).build();
        for (String name : IMPORTS) {
            shell.eval("import " + name + ";");
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(unbuffered(java.io.FileDescriptor.out));
        System.setErr(unbuffered(java.io.FileDescriptor.err));
        InputStream requests = new FileInputStream("/proc/self/fd/" + arguments[0]);
        Cells cells = new Cells(arguments[1]);
        cells.handleInterrupts(new FileInputStream("/proc/self/fd/" + arguments[2]));
        cells.say("{\"event\":\"ready\"}");
        for (String marker = field(requests); marker != null; marker = field(requests)) {
            cells.run(marker, field(requests));
        }
        System.exit(0);
    }

    private static PrintStream unbuffered(java.io.FileDescriptor descriptor) {
        return new PrintStream(new FileOutputStream(descriptor), true, StandardCharsets.UTF_8);
    }

    private static String field(InputStream requests) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int one = requests.read(); one != 0; one = requests.read()) {
            if (one < 0) {
                return null;
            }
            bytes.write(one);
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }

    private void handleInterrupts(InputStream interrupts) {
        // The signal goes to the process group; this process is interrupted by its pipe.
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> { });
        Thread thread = new Thread(() -> {
            try {
                while (interrupts.read() >= 0) {
                    isInterrupted = true;
                    shell.stop();
                }
            } catch (IOException ended) {
                // The server has closed the pipe.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void run(String marker, String code) throws IOException {
        isInterrupted = false;
        evaluate(code);
        System.out.flush();
        System.err.flush();
        byte[] end = ("\0" + marker + "\0").getBytes(StandardCharsets.UTF_8);
        System.out.write(end, 0, end.length);
        System.err.write(end, 0, end.length);
        System.out.flush();
        System.err.flush();
        say("{\"event\":\"done\"}");
    }

    private void evaluate(String code) throws IOException {
        String remaining = code;
        String value = null;
        while (!remaining.isBlank()) {
            CompletionInfo info = shell.sourceCodeAnalysis().analyzeCompletion(remaining);
            String source = info.source() == null ? remaining : info.source();
            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                if (event.causeSnippet() != null) {
                    continue;
                }
                if (isInterrupted) {
                    fail("Interrupted", "The execution was interrupted.", "");
                    return;
                }
                if (event.exception() != null) {
                    fail(event.exception());
                    return;
                }
                if (event.status() == Snippet.Status.REJECTED
                    || event.status() == Snippet.Status.RECOVERABLE_NOT_DEFINED) {
                    rejected(event.snippet());
                    return;
                }
                boolean isExpression = event.snippet().kind() == Snippet.Kind.EXPRESSION
                    || event.snippet().kind() == Snippet.Kind.VAR && !source.trim().endsWith(";");
                value = isExpression && !source.trim().endsWith(";") ? event.value() : null;
            }
            remaining = info.source() == null ? "" : info.remaining();
        }
        if (value != null && !value.isEmpty()) {
            String text = value.length() > LONGEST_TEXT ? value.substring(0, LONGEST_TEXT) + "…" : value;
            say("{\"event\":\"result\",\"is_main_result\":true,\"data\":{\"text/plain\":" + json(text) + "}}");
        }
    }

    private void rejected(Snippet snippet) throws IOException {
        StringBuilder text = new StringBuilder();
        for (Diag diagnostic : shell.diagnostics(snippet).toList()) {
            text.append(diagnostic.getMessage(null)).append('\n');
        }
        String message = text.toString().strip();
        fail("CompilationError", message, message + "\n\n" + snippet.source());
    }

    private void fail(JShellException exception) throws IOException {
        String name = exception instanceof EvalException one ? one.getExceptionClassName() : exception.getClass().getName();
        String message = exception.getMessage() == null ? "" : exception.getMessage();
        StringBuilder trace = new StringBuilder(name + ": " + message);
        for (StackTraceElement element : exception.getStackTrace()) {
            trace.append("\n    at ").append(element);
        }
        fail(name, message, trace.toString());
    }

    private void fail(String name, String value, String traceback) throws IOException {
        say("{\"event\":\"error\",\"name\":" + json(name) + ",\"value\":" + json(value)
            + ",\"traceback\":" + json(traceback) + "}");
    }

    private synchronized void say(String event) throws IOException {
        events.write((event + "\n").getBytes(StandardCharsets.UTF_8));
    }

    private static String json(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                quoted.append('\\').append(one);
            } else if (one < ' ' || one > '~') {
                quoted.append(String.format("\\u%04x", (int) one));
            } else {
                quoted.append(one);
            }
        }
        return quoted.append('"').toString();
    }
}
