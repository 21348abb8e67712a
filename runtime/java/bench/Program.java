// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.List;

/** Child JVM that runs a round of a benchmark on command. */
final class Program implements AutoCloseable {
    private final List<String> command;
    private final Process process;
    private final PrintStream requests;
    private final BufferedReader answers;

    Program(String[] words) throws IOException {
        command = List.of(words);
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        requests = new PrintStream(process.getOutputStream(), true);
        answers = new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    long pid() {
        return process.pid();
    }

    void expectReady() throws IOException {
        String line = answers.readLine();
        if (!"ready".equals(line)) {
            throw new IOException("expected \"ready\" of " + command + ", it said: " + line);
        }
    }

    long round() throws IOException {
        requests.println();
        String line = answers.readLine();
        if (line == null) {
            throw new IOException("ended amid its rounds: " + command);
        }
        return Long.parseLong(line);
    }

    @Override
    public void close() throws InterruptedException {
        requests.close();
        process.waitFor();
    }
}
