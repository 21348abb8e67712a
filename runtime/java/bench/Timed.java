// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * Rounds of fixed work. After a warm-up says "ready"; then does one round for each line that comes
 * in, and answers with the CPU time of the working thread: other programs on the machine disturb
 * it less than the time on the clock.
 */
final class Timed {
    interface Round {
        /** Returns a value that depends on all the work, so that none of it can be left out. */
        long run() throws Exception;
    }

    private Timed() {}

    static void rounds(int warmUp, Round round) throws Exception {
        long expected = round.run();
        for (int i = 1; i < warmUp; i++) {
            round.run();
        }
        System.out.println("ready");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) {
            long begin = threads.getCurrentThreadCpuTime();
            long sum = round.run();
            long ns = threads.getCurrentThreadCpuTime() - begin;
            if (sum != expected) {
                throw new IllegalStateException("a round came to " + sum + ", the first to " + expected);
            }
            System.out.println(ns);
        }
    }
}
