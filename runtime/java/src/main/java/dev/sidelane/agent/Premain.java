// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.lang.instrument.Instrumentation;

/**
 * Entry points of the agent. They are compiled for Java 8, so that an old JVM prints a message
 * instead of an UnsupportedClassVersionError, which would end the program. No method here may
 * throw.
 */
public final class Premain {
    private Premain() {}

    /** Starts the agent for the option {@code -javaagent:}, also in JAVA_TOOL_OPTIONS. */
    public static void premain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    /** Starts an agent that is attached to a running program. */
    public static void agentmain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    private static void start(String options, Instrumentation instrumentation) {
        String why = unsupported();
        if (why != null) {
            stayOut("this JVM (" + name() + ") is not supported: " + why);
            return;
        }
        try {
            Class.forName("dev.sidelane.agent.Agent")
                    .getMethod("start", String.class, Instrumentation.class)
                    .invoke(null, options, instrumentation);
        } catch (ReflectiveOperationException | LinkageError e) {
            stayOut("the agent could not start in this JVM (" + name() + "): "
                    + (e.getCause() == null ? e : e.getCause()));
        }
    }

    static void stayOut(String what) {
        System.err.println("sidelane: " + what
                + "; the program runs on unchecked, the lane holder takes care of it");
    }

    /** Returns the reason why checks are not possible on this JVM, or null. */
    private static String unsupported() {
        return unsupported(
                System.getProperty("java.vm.name", "unknown"),
                System.getProperty("java.specification.version", "0"),
                System.getProperty("sun.arch.data.model", "unknown"),
                System.getProperty("os.name", "unknown"));
    }

    static String unsupported(String vm, String version, String bits, String os) {
        if (!vm.contains("HotSpot") && !vm.startsWith("OpenJDK ")) {
            return "the checks are made for HotSpot";
        }
        // Before version 9, version texts begin with 1., as in 1.8.
        if (version.startsWith("1.") || Integer.parseInt(version) < 11) {
            return "it implements Java " + version + ", the agent needs 11 or later";
        }
        if (!bits.equals("64")) {
            return "it is a " + bits + "-bit one, the agent needs 64 bits";
        }
        return os.equals("Linux") ? null : "it runs on " + os + ", the gate is for Linux";
    }

    private static String name() {
        return System.getProperty("java.vm.name") + " " + System.getProperty("java.version");
    }
}
