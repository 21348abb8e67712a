// SPDX-License-Identifier: Apache-2.0
package program;

import dev.sidelane.Signals;

/** Child program of SignalsIT, which emits more signals and more names than there is room for. */
public final class Emitting {
    private Emitting() {}

    public static void main(String[] args) {
        for (int i = 0; i < 130; i++) {
            Signals.tag("tag" + i).set(i);
            Signals.counter("one place, too").add(1);
        }
        String name = "x".repeat(100_000);
        for (int i = 0; i < 90; i++) {
            Signals.name("tag0", i, name);
        }
        System.out.println("why " + Signals.why());
    }
}
