// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import program.Emitting;

/** Tests of signals of this JVM, read from its own open files. */
class SignalsIT {
    private static SignalsFile mine() throws IOException {
        return SignalsFile.of(ProcessHandle.current().pid());
    }

    @Test
    void aTagIsTheWordThatObserversRead() throws IOException {
        assertNull(Signals.why());
        Signals.Tag phase = Signals.tag("test.phase");
        phase.set(7);
        SignalsFile file = mine();
        int place = file.place("test.phase", SignalsFile.TAG);
        assertEquals(7, file.value(place));
        phase.set(-1);
        assertEquals(-1, file.value(place));
        Signals.tag("test.phase").set(8);
        assertEquals(8, file.value(place), "one word a name");
    }

    @Test
    void aCounterCountsUp() throws IOException {
        Signals.Counter done = Signals.counter("test.done");
        for (int i = 0; i < 1000; i++) {
            done.add(3);
        }
        SignalsFile file = mine();
        assertEquals(3000, file.value(file.place("test.done", SignalsFile.COUNTER)));
        assertEquals(-1, file.place("test.done", SignalsFile.TAG));
    }

    @Test
    void threadsHaveWordsOfTheirOwn() throws IOException {
        Signals.threadTag("test.mine").set(5);
        SignalsFile file = mine();
        assertEquals(5, file.value(file.place("test.mine", SignalsFile.TAG, true)));
        assertEquals(-1, file.place("test.mine", SignalsFile.TAG));
    }

    @Test
    void valuesHaveNamesOfOneLine() throws IOException {
        assertTrue(Signals.name("test.named", 1, "parse"));
        assertTrue(Signals.name("test.named", 2, "flush\tall\nof it"));
        assertEquals(List.of("parse", "flush all of it"), List.copyOf(mine().names("test.named").values()));
    }

    @Test
    void generatedCodeStoresToTheSameWord() throws IOException {
        assertNotEquals(0, Signals.address("test.generated"));
        assertEquals(Signals.address("test.generated"), Signals.address("test.generated"));
        assertTrue(mine().place("test.generated", SignalsFile.TAG) >= 0);
    }

    /** This test fills the file of signals, so it runs in a JVM of its own. */
    @Test
    void whatHasNoPlaceIsSaidOnceAndTheProgramRunsOn() throws Exception {
        List<String> said = run(Path.of("target", "sidelane-agent.jar"));
        List<String> ours = ours(said);
        assertEquals(2, ours.size(), said.toString());
        assertTrue(ours.get(0).contains("'tag127' is not emitted: there are 128 already"), ours.get(0));
        assertTrue(ours.get(1).contains("no room for more names"), ours.get(1));
        assertEquals("why null", said.get(said.size() - 1));
    }

    @Test
    void withoutTheLibraryItIsSaidOnceAndTheProgramRunsOn(@TempDir Path alone) throws Exception {
        Path jar = Files.copy(Path.of("target", "sidelane-agent.jar"), alone.resolve("sidelane-agent.jar"));
        List<String> said = run(jar);
        List<String> ours = ours(said);
        assertEquals(1, ours.size(), said.toString());
        assertTrue(ours.get(0).startsWith("sidelane: signals are not emitted: libsidelane_emit.so is not beside"), ours.get(0));
        assertFalse(said.contains("why null"));
    }

    /**
     * Returns the lines that Sidelane printed. From Java 24 on, the JVM also prints warnings on
     * native libraries.
     */
    private static List<String> ours(List<String> said) {
        return said.stream().filter(line -> line.startsWith("sidelane: ")).collect(Collectors.toList());
    }

    private static List<String> run(Path jar) throws Exception {
        String classes = jar.toAbsolutePath() + ":" + Path.of("target", "test-classes").toAbsolutePath();
        Process child = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp", classes,
                        Emitting.class.getName())
                .redirectErrorStream(true)
                .start();
        try (BufferedReader said = new BufferedReader(new InputStreamReader(child.getInputStream()))) {
            List<String> lines = said.lines().collect(Collectors.toList());
            assertEquals(0, child.waitFor(), lines.toString());
            return lines;
        }
    }
}
