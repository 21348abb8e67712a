// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import java.io.File;
import java.net.URISyntaxException;

/**
 * For services that want their requests known exactly: three calls a request.
 *
 * <pre>
 * Requests.receive(id);  // it is all there              (any thread)
 * Requests.start(id);    // this thread takes it up
 * Requests.finish(id);   // its response was handed on   (any thread)
 * </pre>
 *
 * {@code id} is any number that no other request has at the same time. The calls are those of
 * runtime/c/sidelane.h, in libsidelane_emit.so beside the jar or in java.library.path. Where that
 * cannot be loaded they do nothing, and {@link #why} says what is missing: a service never fails
 * for want of Sidelane.
 */
public final class Requests {
    private static final String LIBRARY = "sidelane_emit";

    private static final String MISSING = load();

    private Requests() {}

    /** The request is all there. */
    public static void receive(long id) {
        if (MISSING == null) {
            received(id);
        }
    }

    /** This thread takes the request up. */
    public static void start(long id) {
        if (MISSING == null) {
            started(id);
        }
    }

    /** The request's response was handed on. */
    public static void finish(long id) {
        if (MISSING == null) {
            finished(id);
        }
    }

    /** Why the calls do nothing; null if they work. */
    public static String why() {
        return MISSING;
    }

    private static String load() {
        File beside = besideThisJar();
        try {
            if (beside != null && beside.exists()) {
                System.load(beside.getAbsolutePath());
            } else {
                System.loadLibrary(LIBRARY);
            }
            return null;
        } catch (UnsatisfiedLinkError | SecurityException e) {
            return "requests are not emitted: lib" + LIBRARY + ".so is not beside the jar (" + beside
                    + ") and not in java.library.path: " + e.getMessage();
        }
    }

    private static File besideThisJar() {
        try {
            File jar = new File(Requests.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            return new File(jar.getParentFile(), System.mapLibraryName(LIBRARY));
        } catch (URISyntaxException | RuntimeException e) {
            return null;
        }
    }

    private static native void received(long id);

    private static native void started(long id);

    private static native void finished(long id);
}
