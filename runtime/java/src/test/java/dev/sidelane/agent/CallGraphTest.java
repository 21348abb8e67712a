// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class CallGraphTest {
    private final CallGraph graph = new CallGraph();

    @Test
    void aMethodThatCallsItselfChecks() {
        assertTrue(graph.needsCheck("f()V", Set.of("f()V")));
    }

    @Test
    void theLastOfACircleChecks() {
        assertFalse(graph.needsCheck("f()V", Set.of("g()V")));
        assertFalse(graph.needsCheck("g()V", Set.of("h()V")));
        assertTrue(graph.needsCheck("h()V", Set.of("f()V")));
        assertFalse(graph.needsCheck("i()V", Set.of("h()V")));
    }

    @Test
    void askingAgainGivesTheSameAnswer() {
        assertFalse(graph.needsCheck("f()V", Set.of("g()V")));
        assertFalse(graph.needsCheck("f()V", Set.of("g()V")));
        assertTrue(graph.needsCheck("g()V", Set.of("f()V")));
        assertTrue(graph.needsCheck("g()V", Set.of("f()V")));
    }

    @Test
    void aRecursionThroughTheJdkChecks() {
        assertTrue(graph.needsCheck("hashCode()I", Set.of(CallGraph.JDK)));
        assertFalse(graph.needsCheck("compare(LA;LA;)I", Set.of("key()I")));
        assertTrue(graph.needsCheck("key()I", Set.of(CallGraph.JDK)));
    }

    /** In random programs, a method without a check never calls itself, directly or indirectly. */
    @Test
    void noCircleIsLeft() {
        for (int seed = 0; seed < 300; seed++) {
            Random random = new Random(seed);
            CallGraph circles = new CallGraph();
            Map<String, Set<String>> unchecked = new HashMap<>();
            for (int step = 0; step < 60; step++) {
                String method = "m" + random.nextInt(20) + "()V";
                Set<String> callees = new HashSet<>();
                for (int i = random.nextInt(4); i > 0; i--) {
                    callees.add("m" + random.nextInt(20) + "()V");
                }
                if (!circles.needsCheck(method, callees)) {
                    unchecked.computeIfAbsent(method, m -> new HashSet<>()).addAll(callees);
                }
            }
            for (String method : unchecked.keySet()) {
                assertFalse(reaches(unchecked, method, method, new HashSet<>()), "seed " + seed);
            }
        }
    }

    private static boolean reaches(Map<String, Set<String>> calls, String from, String to, Set<String> seen) {
        for (String callee : calls.getOrDefault(from, Set.of())) {
            if (callee.equals(to) || seen.add(callee) && reaches(calls, callee, to, seen)) {
                return true;
            }
        }
        return false;
    }
}
