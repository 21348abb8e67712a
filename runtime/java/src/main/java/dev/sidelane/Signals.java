// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Signals of programs that can be observed: tags and counters that cost one store for each change.
 *
 * <pre>
 * static final Signals.Tag PHASE = Signals.tag("app.phase");
 * Signals.name("app.phase", 2, "flush");   // once for each value, if you like
 * PHASE.set(2);                            // one store, whenever it changes
 *
 * sidelane observe --service pid:1234 --signal tag:app.phase
 * </pre>
 *
 * A word must have one writer at a time for its values to be meaningful: threads with phases of
 * their own take a word each ({@link #threadTag}). The format is abi/signal.h; libsidelane_emit.so
 * makes the memory. If that library cannot be loaded the calls do nothing, the first one prints a
 * message, and {@link #why} says what is missing: a program never fails because Sidelane is
 * missing.
 */
public final class Signals {
    private static final int TAG = 1;
    private static final int COUNTER = 2;

    /**
     * Access to a word in opaque mode, so that the JIT leaves no store out. Not sun.misc.Unsafe, of
     * which Java 24 and later warn.
     */
    private static final VarHandle WORD =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private static final String MISSING = missing();

    private static boolean isFullSaid;
    private static boolean areNamesFullSaid;

    private Signals() {}

    /** Signal whose value names the current activity. */
    public static final class Tag {
        private final ByteBuffer word;

        private Tag(ByteBuffer word) {
            this.word = word;
        }

        /** Sets the tag to {@code value}. */
        public void set(long value) {
            WORD.setOpaque(word, 0, value);
        }
    }

    /** Signal whose value increases. */
    public static final class Counter {
        private final ByteBuffer word;

        private Counter(ByteBuffer word) {
            this.word = word;
        }

        /** Adds {@code count} to a counter that no other thread writes. */
        public void add(long count) {
            WORD.setOpaque(word, 0, (long) WORD.getOpaque(word, 0) + count);
        }
    }

    /**
     * Returns the process's tag with that name; further calls return the same word. Names have up
     * to 47 bytes.
     */
    public static Tag tag(String name) {
        return new Tag(wordOf(name, TAG, false));
    }

    /** Returns the process's counter with that name; further calls return the same word. */
    public static Counter counter(String name) {
        return new Counter(wordOf(name, COUNTER, false));
    }

    /** Returns a tag of the calling thread, which has to be a platform thread. */
    public static Tag threadTag(String name) {
        return new Tag(wordOf(name, TAG, true));
    }

    /** Returns a counter of the calling thread, which has to be a platform thread. */
    public static Counter threadCounter(String name) {
        return new Counter(wordOf(name, COUNTER, true));
    }

    /**
     * Sets the name of a tag's value in results. Returns false if there was no room for the name.
     */
    public static synchronized boolean name(String tag, long value, String name) {
        if (MISSING != null) {
            return false;
        }
        boolean kept = named(oneLine(tag), value, oneLine(name));
        if (!kept && !areNamesFullSaid) {
            areNamesFullSaid = true;
            say("there is no room for more names of signals (8 MiB); '" + name + "' and later ones stay numbers");
        }
        return kept;
    }

    /**
     * Returns the address of the tag's word, for generated code that stores to it; 0 if there is
     * none.
     */
    public static long address(String tag) {
        ByteBuffer word = MISSING == null ? word(oneLine(tag), TAG, false) : null;
        return word == null ? 0 : addressOf(word);
    }

    /** Returns the reason why the calls do nothing; null if they work. */
    public static String why() {
        return MISSING;
    }

    private static synchronized ByteBuffer wordOf(String name, int kind, boolean ofThread) {
        ByteBuffer word = MISSING == null ? word(oneLine(name), kind, ofThread) : null;
        if (word != null) {
            return word;
        }
        if (MISSING == null && !isFullSaid) {
            isFullSaid = true;
            say("signal '" + name + "' is not emitted: there are 128 already, or there is no memory");
        }
        // Without the library: aligned memory that no observer reads.
        return ByteBuffer.allocateDirect(2 * Long.BYTES).alignedSlice(Long.BYTES);
    }

    private static String missing() {
        String missing = EmitLibrary.MISSING;
        if (missing == null) {
            return null;
        }
        say("signals are not emitted: " + missing);
        return "signals are not emitted: " + missing;
    }

    private static void say(String what) {
        System.err.println("sidelane: " + what);
    }

    /**
     * Returns the text on one line. Tabs and line ends separate names in the file, so they are
     * replaced.
     */
    private static String oneLine(String text) {
        return text.replace('\t', ' ').replace('\n', ' ');
    }

    /** Returns the eight bytes of a signal's word; null if there is no place in the file. */
    private static native ByteBuffer word(String name, int kind, boolean ofThread);

    private static native long addressOf(ByteBuffer word);

    private static native boolean named(String tag, long value, String name);
}
