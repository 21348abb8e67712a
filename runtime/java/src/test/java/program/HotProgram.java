// SPDX-License-Identifier: Apache-2.0
package program;

import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * Child program of AgentIT, outside the agent's package, which never gets checks. One thread runs a
 * hot counted loop, the other executes commands.
 */
public final class HotProgram {
    private static final int[] VALUES = new int[4096];
    private static volatile long sum;

    private HotProgram() {}

    public static void main(String[] args) throws Exception {
        Thread hot = new Thread(HotProgram::sumForever);
        hot.setDaemon(true);
        hot.start();
        while (sum == 0) {
            Thread.sleep(10);
        }
        System.out.println("hot " + isChecked());
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        System.gc();
        System.out.println("collected");
    }

    private static void sumForever() {
        for (int i = 0; i < VALUES.length; i++) {
            VALUES[i] = i;
        }
        for (int i = 0; i < 20_000; i++) {
            sum += sumOnce(4096);
        }
        while (true) {
            sum += sumOnce(Integer.MAX_VALUE);
        }
    }

    /** Runs a loop that the JIT would compile without any check. */
    private static long sumOnce(int n) {
        long once = 0;
        for (int i = 0; i < n; i++) {
            once += VALUES[i & 4095];
        }
        return once;
    }

    private static boolean isChecked() {
        try {
            Class.forName("java.lang.SidelaneCheck");
            return true;
        } catch (ClassNotFoundException e) {
            return false;
        }
    }
}
