// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/**
 * Reader of the signals that a process emits, from its open files in the format of abi/signal.h.
 */
public final class SignalsFile {
    public static final int TAG = 1;
    public static final int COUNTER = 2;

    private static final long MAGIC = 0x736c616e67697364L;
    private static final int HEAD_BYTES = 64;
    private static final int SIGNALS = 128;
    private static final int SIGNAL_BYTES = 128;
    private static final int NAMES_AT = HEAD_BYTES + SIGNALS * SIGNAL_BYTES;
    private static final int NAMES_BYTES = 8 << 20;

    private final MappedByteBuffer file;

    private SignalsFile(MappedByteBuffer file) {
        this.file = file;
    }

    /**
     * Returns the file of signals of that process; null if it has none. More than one is an error.
     */
    public static SignalsFile of(long pid) throws IOException {
        SignalsFile found = null;
        try (DirectoryStream<Path> open = Files.newDirectoryStream(Path.of("/proc/" + pid + "/fd"))) {
            for (Path link : open) {
                if (Files.isSymbolicLink(link)
                        && Files.readSymbolicLink(link).toString().startsWith("/memfd:sidelane-signals")) {
                    if (found != null) {
                        throw new IOException("process " + pid + " has two files of signals");
                    }
                    found = map(link, pid);
                }
            }
        }
        return found;
    }

    private static SignalsFile map(Path link, long pid) throws IOException {
        try (RandomAccessFile raw = new RandomAccessFile(link.toFile(), "r")) {
            MappedByteBuffer file =
                    raw.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, NAMES_AT + NAMES_BYTES);
            file.order(ByteOrder.nativeOrder());
            if (file.getLong(0) != MAGIC || file.getInt(12) != pid) {
                throw new IOException("not the signals of " + pid + ": " + link);
            }
            return new SignalsFile(file);
        }
    }

    /**
     * Returns the index of the signal of that name and kind that belongs to the whole process; -1
     * if there is none.
     */
    public int place(String name, int kind) {
        return place(name, kind, false);
    }

    public int place(String name, int kind, boolean ofThread) {
        for (int place = 0; place < SIGNALS; place++) {
            int at = HEAD_BYTES + place * SIGNAL_BYTES;
            if (file.getInt(at + 64) == kind && (file.getInt(at + 68) != 0) == ofThread && nameAt(at + 72).equals(name)) {
                return place;
            }
        }
        return -1;
    }

    public long value(int place) {
        return file.getLong(HEAD_BYTES + place * SIGNAL_BYTES);
    }

    /** Returns the names of a tag's values. */
    public Map<Long, String> names(String tag) {
        byte[] bytes = new byte[(int) file.getLong(24)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = file.get(NAMES_AT + i);
        }
        Map<Long, String> names = new TreeMap<>();
        for (String line : new String(bytes, StandardCharsets.UTF_8).split("\n")) {
            String[] parts = line.split("\t", 3);
            if (parts[0].equals(tag)) {
                names.put(Long.parseLong(parts[1]), parts[2]);
            }
        }
        return names;
    }

    private String nameAt(int at) {
        StringBuilder name = new StringBuilder();
        for (int i = at; file.get(i) != 0; i++) {
            name.append((char) file.get(i));
        }
        return name.toString();
    }
}
