// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.sidelane.SignalsFile;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import program.HotProgram;

/** Tests of the built agent in JVMs of its own, with the stub instead of the gate library. */
@Timeout(120)
class AgentIT {
    private static final Path TARGET = Path.of("target").toAbsolutePath();

    @TempDir
    Path folder;

    /** The test covers the hot loop, and a garbage collection while that loop's thread naps. */
    @Test
    void hotLoopStopsAtTheClosedGateAndDelaysNoCollection() throws Exception {
        MappedByteBuffer stub = stubWord();
        Process child = start("", true, "-XX:+UnlockDiagnosticVMOptions", "-XX:+BytecodeVerificationLocal");
        try (BufferedReader said = reader(child)) {
            assertEquals("hot true", said.readLine());
            stub.putLong(8, 0);
            stub.putInt(0, 1);
            while (stub.getLong(8) == 0) {
                Thread.sleep(1);
            }
            child.getOutputStream().write('\n');
            child.getOutputStream().flush();
            assertEquals("collected", said.readLine());
            stub.putInt(0, 0);
            assertEquals(0, child.waitFor());
        } finally {
            child.destroyForcibly();
        }
    }

    @Test
    void withoutSidelaneNothingIsChanged() throws Exception {
        assertEquals(List.of("hot false", "collected"), run(start("", false)));
    }

    @Test
    void aBadOptionIsSaidAndTheProgramRunsOn() throws Exception {
        List<String> said = run(start("fast", true));
        assertTrue(said.get(0).contains("agent option 'fast' is not one of: include="), said.toString());
        assertEquals(List.of("hot false", "collected"), said.subList(1, 3));
    }

    @Test
    void aMissingLibraryIsSaidAndTheProgramRunsOn() throws Exception {
        List<String> said = run(start("library=/nowhere/lib.so", true));
        assertTrue(said.get(0).contains("/nowhere/lib.so") && said.get(0).contains("runs on unchecked"), said.toString());
        assertEquals(List.of("hot false", "collected"), said.subList(1, 3));
    }

    /**
     * The test reads the tag's word each millisecond, as an observer does; most values name the hot
     * loop.
     */
    @Test
    void theHotLoopIsTheHottestTag() throws Exception {
        for (String options : List.of("tag=java.method", "tag=java.method;every-method;exact")) {
            Process child = start(options, false, "-XX:+UnlockDiagnosticVMOptions", "-XX:+BytecodeVerificationLocal");
            try (BufferedReader said = reader(child)) {
                awaitLine(said, "hot false");
                SignalsFile signals = SignalsFile.of(child.pid());
                int word = signals.place("java.method", SignalsFile.TAG);
                Map<Long, Integer> seen = new HashMap<>();
                for (int i = 0; i < 300; i++) {
                    seen.merge(signals.value(word), 1, Integer::sum);
                    Thread.sleep(1);
                }
                long hottest = Collections.max(seen.entrySet(), Map.Entry.comparingByValue()).getKey();
                String name = signals.names("java.method").getOrDefault(hottest, hottest + " has no name");
                assertTrue(name.startsWith("program.HotProgram.sumOnce loop@line "), name + " of " + seen);
            } finally {
                child.destroyForcibly();
            }
        }
    }

    @Test
    void withoutAPlaceForTagsTheProgramRunsOn() throws Exception {
        Path jar = Files.copy(TARGET.resolve("sidelane-agent.jar"), folder.resolve("sidelane-agent.jar"));
        Process child = start(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-javaagent:" + jar + "=tag=java.method",
                "-cp", TARGET.resolve("test-classes").toString(), HotProgram.class.getName()), false);
        List<String> said = run(child);
        assertTrue(said.stream().anyMatch(line -> line.endsWith("the program runs on without tags")), said.toString());
        assertTrue(said.contains("hot false"), said.toString());
    }

    private MappedByteBuffer stubWord() throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(word().toFile(), "rw")) {
            MappedByteBuffer stub = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
            stub.order(ByteOrder.nativeOrder());
            return stub;
        }
    }

    private Path word() {
        return folder.resolve("word");
    }

    private Process start(String options, boolean underSidelane, String... more) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(more));
        command.add("-javaagent:" + TARGET.resolve("sidelane-agent.jar") + "=" + options);
        command.addAll(List.of("-cp", TARGET.resolve("test-classes").toString(), HotProgram.class.getName()));
        return start(command, underSidelane);
    }

    private Process start(List<String> command, boolean underSidelane) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        if (underSidelane) {
            builder.environment().put("SIDELANE_GATE", "1");
            builder.environment().put("SIDELANE_STUB_WORD", word().toString());
            builder.environment().put("LD_PRELOAD", TARGET.resolve("libgate_stub.so").toString());
        } else {
            builder.environment().remove("SIDELANE_GATE");
        }
        return builder.start();
    }

    private static List<String> run(Process child) throws Exception {
        try (BufferedReader said = reader(child)) {
            child.getOutputStream().write('\n');
            child.getOutputStream().flush();
            List<String> lines = new ArrayList<>();
            for (String line = said.readLine(); line != null; line = said.readLine()) {
                lines.add(line);
            }
            assertEquals(0, child.waitFor(), lines.toString());
            return lines;
        }
    }

    /** Waits for a line of output. From Java 24 on, the JVM warns of native libraries first. */
    private static void awaitLine(BufferedReader said, String wanted) throws IOException {
        String line = said.readLine();
        while (line != null && (line.isEmpty() || line.startsWith("WARNING: "))) {
            line = said.readLine();
        }
        assertEquals(wanted, line);
    }

    private static BufferedReader reader(Process child) {
        return new BufferedReader(new InputStreamReader(child.getInputStream()));
    }
}
