// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.ArrayList;
import java.util.List;

/** Options of the agent: the text after {@code -javaagent:sidelane-agent.jar=}. */
final class Options {
    static final String ALLOWED =
            "include=PREFIX:..., exclude=PREFIX:..., library=PATH, entries-only, loops-only,"
                    + " tag=NAME, every-method, exits, exact, verbose";

    private final List<String> include = new ArrayList<>();
    private final List<String> exclude = new ArrayList<>();
    private String library;
    private String tag;
    private boolean everyMethod;
    private boolean exits;
    private boolean exact;
    private boolean entries = true;
    private boolean loops = true;
    private boolean verbose;

    private Options() {}

    /**
     * Parses options, which {@code ;} separates. Throws an IllegalArgumentException that lists the
     * allowed options.
     */
    static Options parse(String text) {
        Options options = new Options();
        for (String part : (text == null ? "" : text).split(";")) {
            if (!part.isBlank()) {
                options.take(part.trim());
            }
        }
        if (!options.entries && !options.loops) {
            throw new IllegalArgumentException("agent options entries-only and loops-only exclude each other");
        }
        options.refuseWithoutTag("every-method", options.everyMethod);
        options.refuseWithoutTag("exits", options.exits);
        options.refuseWithoutTag("exact", options.exact);
        return options;
    }

    private void take(String part) {
        int equals = part.indexOf('=');
        String name = equals < 0 ? part : part.substring(0, equals);
        String value = equals < 0 ? null : part.substring(equals + 1);
        boolean wantsValue = name.equals("include") || name.equals("exclude") || name.equals("library")
                || name.equals("tag");
        if (wantsValue != (value != null && !value.isEmpty())) {
            throw bad(part);
        }
        switch (name) {
            case "include": addPrefixes(include, value); break;
            case "exclude": addPrefixes(exclude, value); break;
            case "library": library = value; break;
            case "tag": tag = value; break;
            case "every-method": everyMethod = true; break;
            case "exits": exits = true; break;
            case "exact": exact = true; break;
            case "entries-only": loops = false; break;
            case "loops-only": entries = false; break;
            case "verbose": verbose = true; break;
            default: throw bad(part);
        }
    }

    private void refuseWithoutTag(String name, boolean isSet) {
        if (isSet && tag == null) {
            throw new IllegalArgumentException("agent option " + name + " is for tags: it needs tag=NAME");
        }
    }

    private static IllegalArgumentException bad(String part) {
        return new IllegalArgumentException(
                "agent option '" + part + "' is not one of: " + ALLOWED + " (separated by ';')");
    }

    private static void addPrefixes(List<String> to, String value) {
        for (String prefix : value.split(":")) {
            to.add(prefix.replace('.', '/'));
        }
    }

    /** Returns the classes and methods that get checks. */
    Scope scope() {
        return new Scope(include, exclude, false, false);
    }

    /** Returns the classes and methods that get tags. */
    Scope scopeOfTags() {
        return new Scope(include, exclude, everyMethod, exits);
    }

    /** Returns the name of the tag for the running method and loop; null if none is wanted. */
    String tag() {
        return tag;
    }

    String library() {
        return library;
    }

    /** Returns whether a tag is stored at every point, so that the JIT leaves none out. */
    boolean exact() {
        return exact;
    }

    boolean entries() {
        return entries;
    }

    boolean loops() {
        return loops;
    }

    void log(String what) {
        if (verbose) {
            System.err.println("sidelane: " + what);
        }
    }
}
