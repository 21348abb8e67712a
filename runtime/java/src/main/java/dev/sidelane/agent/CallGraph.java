// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * Decides which methods check at their entry: enough that nothing recurses without a check, and no
 * more, since small methods are called so often that their checks are most of the cost.
 *
 * The graph has a node for each name and descriptor, whatever the class: a virtual call may end in
 * any method of its name, loaded already or not. Its edges are the calls of methods *without* a
 * check. A method whose calls would close a circle gets a check, and its calls are left out. So
 * the graph stays free of circles: every recursion comes by a check, in whichever order classes
 * are loaded and however calls are dispatched.
 *
 * What the JDK does with the objects that it is given is one node, {@link #JDK}: it may call every
 * method of the names that its own types have.
 */
final class CallGraph {
    static final String JDK = "JDK";

    /** A search that finds no end is cut off, as if it had found a circle. */
    private static final int SEARCH_MAX = 4000;

    /** The methods through which the JDK calls a program. Lambdas are found where they are made. */
    private static final Set<String> CALLBACKS = Set.of(
            "compare", "compareTo", "equals", "hashCode", "toString", "run", "call", "apply", "accept",
            "test", "get", "iterator", "next", "hasNext", "size", "read", "write", "close", "charAt");

    private final Map<String, Set<String>> calls = new HashMap<>();

    /** Whether a method has to check at its entry, if it calls these. If not, they are remembered. */
    synchronized boolean needsCheck(String method, Set<String> callees) {
        boolean isCallback = CALLBACKS.contains(method.substring(0, method.indexOf('(')));
        if (reaches(callees, isCallback ? Set.of(method, JDK) : Set.of(method))) {
            return true;
        }
        if (!callees.isEmpty()) {
            calls.computeIfAbsent(method, m -> new HashSet<>()).addAll(callees);
        }
        if (isCallback) {
            calls.computeIfAbsent(JDK, m -> new HashSet<>()).add(method);
        }
        return false;
    }

    private boolean reaches(Set<String> from, Set<String> targets) {
        Set<String> seen = new HashSet<>(from);
        ArrayDeque<String> todo = new ArrayDeque<>(from);
        while (!todo.isEmpty()) {
            String method = todo.pop();
            if (targets.contains(method) || seen.size() > SEARCH_MAX) {
                return true;
            }
            for (String callee : calls.getOrDefault(method, Set.of())) {
                if (seen.add(callee)) {
                    todo.push(callee);
                }
            }
        }
        return false;
    }
}
