// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.List;

/**
 * Classes and methods that get points. In the program: all classes, or those in {@code include}. In
 * the JDK: the libraries with loops over the program's data. For checks, methods with loops and
 * some recursive methods are enough; for tags, it may be every method. Prefixes are of internal
 * names.
 */
final class Scope {
    /**
     * Classes that never get points, from any loader: the machinery of the JVM and of the agent.
     */
    private static final List<String> NEVER = List.of(
            "dev/sidelane/",
            // Classes with short compare-and-swap loops, and with methods that run on reserved
            // additional stack.
            "java/util/concurrent/locks/",
            "java/util/concurrent/atomic/");

    /** Classes that get no checks, but may get tags. */
    private static final List<String> COSTLY = List.of(
            // Loops of hash maps follow one bucket for a turn or two; checks in them would be
            // expensive for programs with many look-ups.
            "java/util/HashMap",
            "java/util/LinkedHashMap",
            "java/util/IdentityHashMap",
            "java/util/WeakHashMap",
            "java/util/concurrent/ConcurrentHashMap");

    /**
     * JDK libraries that get points. Without java.lang: its loops are short, intrinsics or part of
     * the start of the JVM.
     */
    private static final List<String> JDK_LIBRARIES = List.of(
            "java/util/", "java/text/", "java/math/", "com/sun/org/apache/");

    private static final List<String> JDK = List.of("java/", "javax/", "jdk/", "sun/", "com/sun/");

    /**
     * Libraries that can run for long by recursion alone, such as a regular expression that
     * backtracks.
     */
    private static final List<String> RECURSIVE_LIBRARIES =
            List.of("java/util/regex/", "com/sun/org/apache/");

    private final List<String> include;
    private final List<String> exclude;

    private final boolean everyMethod;
    private final boolean exits;

    Scope(List<String> include, List<String> exclude, boolean everyMethod, boolean exits) {
        this.include = List.copyOf(include);
        this.exclude = List.copyOf(exclude);
        this.everyMethod = everyMethod;
        this.exits = exits;
    }

    /** Returns whether the class gets any points. A null loader is the boot loader. */
    boolean covers(ClassLoader loader, String name) {
        if (name == null || starts(name, NEVER) || starts(name, exclude)) {
            return false;
        }
        if (!everyMethod && starts(name, COSTLY)) {
            return false;
        }
        if (starts(name, JDK) || loader == null) {
            return starts(name, JDK_LIBRARIES);
        }
        return include.isEmpty() || starts(name, include);
    }

    /**
     * Returns whether every method has a point at its entry; if not, only some recursive methods
     * have one.
     */
    boolean everyMethod() {
        return everyMethod;
    }

    /** Returns whether a method with a point at its entry also has one at each exit. */
    boolean exits() {
        return exits;
    }

    /**
     * Returns whether recursive methods of the class need a point at their entry. Those of the JDK
     * do not: methods that have a point call them.
     */
    static boolean entries(String name) {
        return !starts(name, JDK) || starts(name, RECURSIVE_LIBRARIES);
    }

    static boolean isJdk(String name) {
        return starts(name, JDK);
    }

    private static boolean starts(String name, List<String> prefixes) {
        for (String prefix : prefixes) {
            if (name.startsWith(prefix)) {
                return true;
            }
        }
        return false;
    }
}
