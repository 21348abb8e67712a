// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;

/**
 * Class loader that defines given classes, with or without inserted points; its parent loads all
 * other classes.
 */
final class Loader extends ClassLoader {
    private final Map<String, byte[]> classes = new HashMap<>();

    Loader() {
        super(Loader.class.getClassLoader());
    }

    Loader with(String name, byte[] bytes) {
        classes.put(name, bytes);
        return this;
    }

    /** Returns a loader of the class and its nested classes, as the transformer returns them. */
    static Loader transformed(PointTransformer transformer, Class<?>... originals) {
        Loader loader = new Loader();
        for (Class<?> original : originals) {
            byte[] before = bytes(original);
            byte[] after = transformer.instrument(before);
            loader.with(original.getName(), after == null ? before : after);
        }
        return loader;
    }

    static byte[] bytes(Class<?> original) {
        String file = original.getName().replace('.', '/') + ".class";
        try (InputStream in = original.getClassLoader().getResourceAsStream(file)) {
            return in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
        byte[] bytes = classes.remove(name);
        return bytes == null ? super.loadClass(name, resolve) : defineClass(name, bytes, 0, bytes.length);
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
        Class<?> found = findLoadedClass(name);
        if (found == null) {
            throw new ClassNotFoundException(name);
        }
        return found;
    }
}
