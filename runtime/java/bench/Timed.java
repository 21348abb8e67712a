// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * Benchmark of fixed work in rounds. Prints "ready" after a warm-up, then runs one round for each
 * line on its input. It answers with the CPU time of the working thread, which other programs on
 * the machine affect less than wall-clock time.
 */
final class Timed {
    interface Round {
        /**
         * Runs one round. Returns a value that depends on all the work, so that the compiler cannot
         * leave any of it out.
         */
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
