// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;
import java.util.Locale;

/**
 * Comparison of a program without and with checks. Arguments: NAME PAIRS ROUNDS PLAIN-COMMAND
 * CHECKED-COMMAND, words of a command separated by single spaces.
 *
 * A pair is two fresh JVMs that run in turns, a round each, so that other load on the machine
 * affects both alike. The ratio of a pair is the median of its rounds' ratios.
 */
public final class Pairs {
    private Pairs() {}

    public static void main(String[] args) throws Exception {
        int pairs = Integer.parseInt(args[1]);
        int rounds = Integer.parseInt(args[2]);
        String[] plain = args[3].split(" ");
        String[] checked = args[4].split(" ");
        double[] ratios = new double[pairs];
        for (int i = 0; i < pairs; i++) {
            ratios[i] = pair(plain, checked, rounds);
            System.err.printf(Locale.ROOT, "%s pair %d: %.4f%n", args[0], i + 1, ratios[i]);
        }
        Arrays.sort(ratios);
        System.out.printf(
                Locale.ROOT,
                "{\"program\":\"%s\",\"pairs\":%d,\"ratio_median\":%.4f,\"ratio_p25\":%.4f,\"ratio_p75\":%.4f}%n",
                args[0], pairs, quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75));
    }

    private static double pair(String[] plain, String[] checked, int rounds) throws Exception {
        try (Program a = new Program(plain); Program b = new Program(checked)) {
            a.expectReady();
            b.expectReady();
            return takeTurns(a, b, rounds);
        }
    }

    /**
     * Returns the median ratio of b's times to a's; each of the programs runs first in half of the
     * rounds.
     */
    static double takeTurns(Program a, Program b, int rounds) throws Exception {
        double[] ratios = new double[rounds];
        for (int i = 0; i < rounds; i++) {
            boolean plainFirst = i % 2 == 0;
            long first = (plainFirst ? a : b).round();
            long second = (plainFirst ? b : a).round();
            ratios[i] = plainFirst ? (double) second / first : (double) first / second;
        }
        Arrays.sort(ratios);
        return quantile(ratios, 0.5);
    }

    /** Returns a quantile of sorted values, interpolated between the two nearest values. */
    static double quantile(double[] sorted, double p) {
        double at = p * (sorted.length - 1);
        int i = (int) at;
        double above = sorted[Math.min(i + 1, sorted.length - 1)];
        return sorted[i] + (at - i) * (above - sorted[i]);
    }
}
