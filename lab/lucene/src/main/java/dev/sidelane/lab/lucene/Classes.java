// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.io.InputStream;

/** Loads classes, as a server does after its start. */
final class Classes {
    /** Class that is loaded repeatedly. */
    static final class Loaded {
        static final Object MARK = new Object();

        private Loaded() {}
    }

    private static final String NAME = Loaded.class.getName();

    private Classes() {}

    /** Loads and initialises the class {@code count} times, each time by a new class loader. */
    static int load(int count) throws IOException {
        byte[] code = code();
        for (int number = 0; number < count; number++) {
            try {
                Class.forName(NAME, true, new Loader(code));
            } catch (ClassNotFoundException impossible) {
                throw new IllegalStateException(impossible);
            }
        }
        return count;
    }

    private static byte[] code() throws IOException {
        try (InputStream file = Loaded.class.getResourceAsStream("Classes$Loaded.class")) {
            return file.readAllBytes();
        }
    }

    private static final class Loader extends ClassLoader {
        private final byte[] code;

        Loader(byte[] code) {
            super(Loader.class.getClassLoader());
            this.code = code;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            return name.equals(NAME) ? defineClass(name, code, 0, code.length) : super.loadClass(name, resolve);
        }
    }
}
