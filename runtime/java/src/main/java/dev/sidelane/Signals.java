// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * For programs that want to be observed: tags and counters that cost one store each.
 *
 * <pre>
 * static final Signals.Tag PHASE = Signals.tag("app.phase");
 * Signals.name("app.phase", 2, "flush");   // once for each value, if you like
 * PHASE.set(2);                            // one store, whenever it changes
 *
 * sidelane observe --target pid:1234 --signal tag:app.phase
 * </pre>
 *
 * A word has one writer at a time if its values are to mean anything: threads that each have a
 * phase take a word each ({@link #threadTag}). The format is abi/signal.h, the memory is made by
 * libsidelane_emit.so. Where that cannot be loaded the calls do nothing, the first one says so, and
 * {@link #why} says what is missing: a program never fails for want of Sidelane.
 */
public final class Signals {
    private static final int TAG = 1;
    private static final int COUNTER = 2;

    /** Not sun.misc.Unsafe: Java 24 and later warn of it. Opaque, so that no store is left out. */
    private static final VarHandle WORD =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private static final String MISSING = missing();

    private static boolean isFullSaid;
    private static boolean areNamesFullSaid;

    private Signals() {}

    /** A value that says what goes on. */
    public static final class Tag {
        private final ByteBuffer word;

        private Tag(ByteBuffer word) {
            this.word = word;
        }

        /** The tag is {@code value} from now on. */
        public void set(long value) {
            WORD.setOpaque(word, 0, value);
        }
    }

    /** A value that counts up. */
    public static final class Counter {
        private final ByteBuffer word;

        private Counter(ByteBuffer word) {
            this.word = word;
        }

        /** Adds to a counter that no other thread writes. */
        public void add(long count) {
            WORD.setOpaque(word, 0, (long) WORD.getOpaque(word, 0) + count);
        }
    }

    /** The process's tag of that name; the same word for whoever asks again. Names have up to 47 bytes. */
    public static Tag tag(String name) {
        return new Tag(wordOf(name, TAG, false));
    }

    /** The process's counter of that name. */
    public static Counter counter(String name) {
        return new Counter(wordOf(name, COUNTER, false));
    }

    /** A tag of the calling thread alone, which has to be a platform thread. */
    public static Tag threadTag(String name) {
        return new Tag(wordOf(name, TAG, true));
    }

    /** A counter of the calling thread alone, which has to be a platform thread. */
    public static Counter threadCounter(String name) {
        return new Counter(wordOf(name, COUNTER, true));
    }

    /** What a tag's value means, for whoever reads results. False: there was no room for it. */
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

    /** Where the tag's word is, for generated code that stores to it; 0 if there is none. */
    public static long address(String tag) {
        ByteBuffer word = MISSING == null ? word(oneLine(tag), TAG, false) : null;
        return word == null ? 0 : addressOf(word);
    }

    /** Why the calls do nothing; null if they work. */
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
            say("signal '" + name + "' is not emitted: there are 128 already, or no memory is to be had");
        }
        // Aligned memory of its own, which nobody reads.
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

    /** Tabs and ends of lines separate names in the file. */
    private static String oneLine(String text) {
        return text.replace('\t', ' ').replace('\n', ' ');
    }

    /** Eight bytes; null if there is no place. */
    private static native ByteBuffer word(String name, int kind, boolean ofThread);

    private static native long addressOf(ByteBuffer word);

    private static native boolean named(String tag, long value, String name);
}
