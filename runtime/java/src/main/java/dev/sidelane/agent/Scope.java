// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.List;

/**
 * Which classes and methods get points. Of the program: all classes, or those that {@code include}
 * names. Of the JDK: the libraries with loops over the program's data. Of methods: those with
 * loops and some that recurse, which is enough for checks; or every one, which is for tags.
 * Prefixes are of internal names.
 */
final class Scope {
    /** Whatever loads it: these are the machinery of the JVM and of the agent. */
    private static final List<String> NEVER = List.of(
            "dev/sidelane/",
            // Small compare-and-swap loops, and methods with extra stack reserved for them.
            "java/util/concurrent/locks/",
            "java/util/concurrent/atomic/");

    /** Not with checks, unlike tags. */
    private static final List<String> COSTLY = List.of(
            // They follow one bucket, a turn or two; with checks a program of many look-ups pays for nothing.
            "java/util/HashMap",
            "java/util/LinkedHashMap",
            "java/util/IdentityHashMap",
            "java/util/WeakHashMap",
            "java/util/concurrent/ConcurrentHashMap");

    /** Not java.lang: its loops are short, intrinsic or part of starting up. */
    private static final List<String> JDK_LIBRARIES = List.of(
            "java/util/", "java/text/", "java/math/", "com/sun/org/apache/");

    private static final List<String> JDK = List.of("java/", "javax/", "jdk/", "sun/", "com/sun/");

    /** Libraries that can run for long by recursion alone: a pattern that backtracks. */
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

    /** Whether the class gets any points. A null loader is the boot loader. */
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

    /** Whether every method has a point at its entry; otherwise where recursions need one. */
    boolean everyMethod() {
        return everyMethod;
    }

    /** Whether a method with a point at its entry has one at each exit, too. */
    boolean exits() {
        return exits;
    }

    /** Whether its methods need a point at their entry: the JDK is called from methods that have one. */
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
