// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import dev.sidelane.Signals;
import java.io.File;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.net.URISyntaxException;
import java.util.Arrays;

/**
 * Main class of the agent. It adds the gate's check to the program, or a tag for the running
 * method, or both: to loaded classes at once, and to further classes as they are loaded. On an
 * error it prints one line, and the program continues as without the agent.
 */
public final class Agent {
    private static final String LIBRARY = "libsidelane_java.so";

    private Agent() {}

    /** Starts the agent. {@link Premain} calls it once. */
    public static void start(String optionString, Instrumentation instrumentation) {
        Options options;
        try {
            options = Options.parse(optionString);
        } catch (IllegalArgumentException e) {
            Premain.stayOut(e.getMessage());
            return;
        }
        boolean hasGate = System.getenv("SIDELANE_GATE") != null;
        if (!hasGate && options.tag() == null) {
            options.log("SIDELANE_GATE is not set: not under Sidelane, nothing is changed");
        }
        if (hasGate) {
            try {
                addChecks(options, instrumentation);
            } catch (Exception | LinkageError e) {
                Premain.stayOut("checks could not be added to this program: " + e);
            }
        }
        if (options.tag() != null) {
            try {
                addTags(options, instrumentation);
            } catch (Exception | LinkageError e) {
                stayUntagged("'" + options.tag() + "' could not be added to this program: " + e);
            }
        }
    }

    private static void addChecks(Options options, Instrumentation instrumentation) throws Exception {
        if (BootClass.isDefined(CheckClass.NAME)) {
            options.log("the checks are there already, a second agent does nothing");
            return;
        }
        File library = new File(options.library() != null ? options.library() : besideThisJar());
        if (!library.canRead()) {
            Premain.stayOut("the agent's native half is missing: " + library
                    + " cannot be read (it belongs beside the jar, or give library=PATH)");
            return;
        }
        if (!CheckClass.define(instrumentation, library.getAbsolutePath())) {
            Premain.stayOut("SIDELANE_GATE is set but no gate is open in this process"
                    + " (is libsidelane_gate.so missing from LD_PRELOAD?)");
            return;
        }
        PointTransformer transformer =
                new PointTransformer(options, options.scope(), CheckClass.calls(CheckClass.NAME));
        transformer.rehearse();
        instrumentation.addTransformer(transformer, true);
        if (!CheckClass.promise()) {
            options.log("threads will be announced to the gate at their first nap, not at their start");
        }
        retransform(options, options.scope(), instrumentation);
    }

    private static void addTags(Options options, Instrumentation instrumentation) throws Exception {
        if (BootClass.isDefined(TagClass.NAME)) {
            options.log("the tags are there already, a second agent does nothing");
            return;
        }
        long address = Signals.address(options.tag());
        if (address == 0) {
            stayUntagged("there is no place for tag '" + options.tag() + "': "
                    + (Signals.why() == null ? "a process has 128 signals at most" : "libsidelane_emit.so is missing"));
            return;
        }
        PointIds ids = new PointIds(options.tag());
        BootClass.define(instrumentation, TagClass.bytes(address, options.exact()));
        PointTransformer transformer =
                new PointTransformer(options, options.scopeOfTags(), TagClass.calls(TagClass.NAME, ids::of));
        transformer.rehearse();
        instrumentation.addTransformer(transformer, true);
        retransform(options, options.scopeOfTags(), instrumentation);
    }

    private static void stayUntagged(String what) {
        System.err.println("sidelane: " + what + "; the program runs on without tags");
    }

    private static String besideThisJar() throws URISyntaxException {
        File jar = new File(Agent.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        return new File(jar.getParentFile(), LIBRARY).getPath();
    }

    /**
     * Transforms all loaded classes in one call, so that the program is stopped once and not for
     * each class. It does so before the program begins: when classes change for the first time,
     * HotSpot discards all compiled code.
     */
    private static void retransform(Options options, Scope scope, Instrumentation instrumentation) {
        Class<?>[] loaded = Arrays.stream(instrumentation.getAllLoadedClasses())
                .filter(c -> !c.isArray() && instrumentation.isModifiableClass(c))
                .filter(c -> scope.covers(c.getClassLoader(), c.getName().replace('.', '/')))
                .toArray(Class<?>[]::new);
        try {
            instrumentation.retransformClasses(loaded);
        } catch (UnmodifiableClassException | LinkageError | InternalError e) {
            options.log("loaded classes stay as they are: " + e);
            return;
        }
        options.log(loaded.length + " loaded classes looked at, the others follow as they are loaded");
    }
}
