// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class OptionsTest {
    private static final ClassLoader PROGRAM = OptionsTest.class.getClassLoader();

    @Test
    void nothingSaidCoversTheProgramAndTheLibrariesOfTheJdk() {
        Scope scope = Options.parse(null).scope();
        assertTrue(scope.covers(PROGRAM, "org/example/Main"));
        assertTrue(scope.covers(null, "java/util/TimSort"));
        assertFalse(scope.covers(null, "java/lang/String"));
        assertFalse(scope.covers(null, "jdk/internal/misc/Unsafe"));
        assertFalse(scope.covers(null, "java/util/concurrent/locks/AbstractQueuedSynchronizer"));
        assertFalse(scope.covers(PROGRAM, "dev/sidelane/agent/Agent"));
        assertFalse(scope.covers(PROGRAM, null));
    }

    @Test
    void prefixesAreWrittenAsInJava() {
        Scope scope = Options.parse("include=org.example:com.acme;exclude=org.example.gen").scope();
        assertTrue(scope.covers(PROGRAM, "org/example/Main"));
        assertTrue(scope.covers(PROGRAM, "com/acme/Main"));
        assertFalse(scope.covers(PROGRAM, "org/example/gen/Table"));
        assertFalse(scope.covers(PROGRAM, "net/other/Main"));
    }

    @Test
    void wherePartsOfTheProgramAreChecked() {
        assertFalse(Options.parse("entries-only").loops());
        assertFalse(Options.parse("loops-only;verbose").entries());
    }

    @Test
    void tagsMayHaveMorePlacesThanChecks() {
        Options options = Options.parse("tag=java.method;every-method;exclude=org.example");
        assertEquals("java.method", options.tag());
        assertFalse(options.scope().everyMethod());
        assertFalse(options.scope().covers(null, "java/util/HashMap"));
        assertTrue(options.scopeOfTags().everyMethod());
        assertFalse(options.scopeOfTags().exits());
        assertTrue(Options.parse("tag=t;exits").scopeOfTags().exits());
        assertTrue(options.scopeOfTags().covers(null, "java/util/HashMap"));
        assertFalse(options.scopeOfTags().covers(PROGRAM, "org/example/Main"));
        assertFalse(options.scopeOfTags().covers(null, "java/util/concurrent/atomic/AtomicLong"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"fast", "tag=", "every-method", "exits", "exact", "include", "include=", "verbose=yes", "entries-only;loops-only"})
    void aBadOptionIsNamed(String text) {
        String message = assertThrows(IllegalArgumentException.class, () -> Options.parse(text)).getMessage();
        assertTrue(message.contains(text.split(";")[0]), message);
    }

    @Test
    void otherMachinesAreRefusedWithAReason() {
        assertNull(Premain.unsupported("OpenJDK 64-Bit Server VM", "17", "64", "Linux"));
        assertNull(Premain.unsupported("Java HotSpot(TM) 64-Bit Server VM", "25", "64", "Linux"));
        assertEquals("the checks are made for HotSpot",
                Premain.unsupported("Eclipse OpenJ9 VM", "17", "64", "Linux"));
        assertTrue(Premain.unsupported("OpenJDK 64-Bit Server VM", "1.8", "64", "Linux").contains("11 or later"));
        assertTrue(Premain.unsupported("OpenJDK Server VM", "17", "32", "Linux").contains("32-bit"));
        assertTrue(Premain.unsupported("OpenJDK 64-Bit Server VM", "17", "64", "Mac OS X").contains("Mac OS X"));
    }
}
