// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * Graph of calls that decides which methods check at their entry: enough that every recursion has a
 * check. No further methods check, since the checks of small methods, which are called most, are
 * most of the cost.
 *
 * The graph has a node for each name and descriptor, whatever the class: a virtual call may reach
 * any method of that name, loaded already or not. Its edges are the calls of methods *without* a
 * check. A method whose calls would close a cycle gets a check, and its calls are left out. So the
 * graph has no cycles: every recursion passes a check, whatever the order of loading and the
 * dispatch of calls.
 *
 * The JDK's calls on objects that it is given are one node, {@link #JDK}: it may call every method
 * whose name is one of a JDK type's methods.
 */
final class CallGraph {
    static final String JDK = "JDK";

    /** The most nodes that a search visits. A longer search is ended as if it had found a cycle. */
    private static final int SEARCH_MAX = 4000;

    /**
     * Names of the methods by which the JDK calls a program. Calls of lambdas are found at the
     * lambda's creation instead.
     */
    private static final Set<String> CALLBACKS = Set.of(
            "compare", "compareTo", "equals", "hashCode", "toString", "run", "call", "apply", "accept",
            "test", "get", "iterator", "next", "hasNext", "size", "read", "write", "close", "charAt");

    private final Map<String, Set<String>> calls = new HashMap<>();

    /**
     * Returns whether {@code method}, which calls {@code callees}, has to check at its entry. If
     * not, its calls are added to the graph.
     */
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
