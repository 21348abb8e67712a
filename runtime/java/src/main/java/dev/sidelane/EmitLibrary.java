// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

import java.io.File;
import java.net.URISyntaxException;

/**
 * Loader of libsidelane_emit.so, beside the jar or in java.library.path. It is loaded once for
 * signals and requests.
 */
final class EmitLibrary {
    private static final String LIBRARY = "sidelane_emit";

    /** Reason why the library could not be loaded; null if it was. */
    static final String MISSING = load();

    private EmitLibrary() {}

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
            return "lib" + LIBRARY + ".so is not beside the jar (" + beside + ") and not in java.library.path: "
                    + e.getMessage();
        }
    }

    private static File besideThisJar() {
        try {
            File jar = new File(EmitLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            return new File(jar.getParentFile(), System.mapLibraryName(LIBRARY));
        } catch (URISyntaxException | RuntimeException e) {
            return null;
        }
    }
}
