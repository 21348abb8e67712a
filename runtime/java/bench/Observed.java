// SPDX-License-Identifier: Apache-2.0
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Benchmark of the cost of tags, and of the cost of being observed. Arguments: NAME PAIRS ROUNDS
 * FOLDER PLAIN-COMMAND TAGGED-COMMAND OBSERVER-COMMAND PERIOD..., words of a command separated by
 * single spaces. In the observer's command, PID, PERIOD and RESULT are replaced by their values.
 *
 * A pair is two fresh JVMs. First they run in turns, without and with tags. Then the JVM with tags
 * continues while an observer reads the tags, between two stretches without an observer. The
 * compiled code is the same, so only the observer makes the difference.
 */
public final class Observed {
    /** Time that an observer may need to find its target, in nanoseconds. */
    private static final long ATTACHED_NS = 1_000_000_000;
    /**
     * Keys of the observer's figures that show how often it really read: its period, and the
     * changes of the tag's word that it saw.
     */
    private static final List<String> ACHIEVED = List.of("period_mean_cycles", "line_transfers_min_per_s");

    private final Map<String, List<Double>> results = new LinkedHashMap<>();
    private final String name;
    private final int rounds;
    private final Path folder;
    private final String observer;

    private Observed(String[] args) {
        name = args[0];
        rounds = Integer.parseInt(args[2]);
        folder = Path.of(args[3]);
        observer = args[6];
    }

    public static void main(String[] args) throws Exception {
        Observed all = new Observed(args);
        List<String> periods = Arrays.asList(args).subList(7, args.length);
        int pairs = Integer.parseInt(args[1]);
        for (int i = 0; i < pairs; i++) {
            all.pair(args[4].split(" "), args[5].split(" "), periods);
            System.err.printf("%s pair %d: %s%n", args[0], i + 1, all.lastOfEach());
        }
        System.out.printf("{\"program\":\"%s\",\"pairs\":%d%s}%n", args[0], pairs, all.quantiles());
    }

    private void pair(String[] plain, String[] tagged, List<String> periods) throws Exception {
        try (Program a = new Program(plain); Program b = new Program(tagged)) {
            a.expectReady();
            b.expectReady();
            add("tag_ratio", Pairs.takeTurns(a, b, rounds));
            for (String period : periods) {
                List<Long> alone = rounds(b, rounds / 2);
                List<Long> observed = observedRounds(b, period);
                alone.addAll(rounds(b, rounds / 2));
                add("observed_" + period + "_ratio", median(observed) / median(alone));
            }
        }
    }

    private static List<Long> rounds(Program program, int count) throws IOException {
        List<Long> ns = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            ns.add(program.round());
        }
        return ns;
    }

    /** Returns the times of the rounds during which the observer ran. */
    private List<Long> observedRounds(Program program, String period) throws Exception {
        Path result = folder.resolve(name + "-" + period + ".json");
        Path said = folder.resolve(name + "-" + period + ".txt");
        Process process = observe(program.pid(), period, result, said);
        long attached = System.nanoTime() + ATTACHED_NS;
        List<Long> ns = new ArrayList<>();
        while (true) {
            boolean begun = System.nanoTime() >= attached;
            long round = program.round();
            if (!process.isAlive()) {
                break;
            }
            if (begun) {
                ns.add(round);
            }
        }
        if (process.waitFor() != 0) {
            throw new IOException("the observer failed: " + Files.readString(said));
        }
        if (ns.isEmpty()) {
            throw new IOException("no round of " + name + " lay within the time that it was observed: they are too long");
        }
        for (String what : ACHIEVED) {
            Matcher value = Pattern.compile("\"" + what + "\": ([0-9.]+)").matcher(Files.readString(result));
            add("observed_" + period + "_" + what, value.find() ? Double.parseDouble(value.group(1)) : Double.NaN);
        }
        return ns;
    }

    private Process observe(long pid, String period, Path result, Path said) throws IOException {
        String command = observer.replace("PID", Long.toString(pid))
                .replace("PERIOD", period)
                .replace("RESULT", result.toString());
        File output = said.toFile();
        return new ProcessBuilder(command.split(" ")).redirectErrorStream(true).redirectOutput(output).start();
    }

    private void add(String what, double value) {
        results.computeIfAbsent(what, w -> new ArrayList<>()).add(value);
    }

    private static double median(List<Long> values) {
        return Pairs.quantile(values.stream().mapToDouble(v -> v).sorted().toArray(), 0.5);
    }

    private String lastOfEach() {
        StringBuilder all = new StringBuilder();
        results.forEach((what, values) ->
                all.append(String.format(Locale.ROOT, " %s %.4f", what, values.get(values.size() - 1))));
        return all.toString().trim();
    }

    private String quantiles() {
        StringBuilder all = new StringBuilder();
        results.forEach((what, values) -> {
            double[] sorted = values.stream().mapToDouble(v -> v).sorted().toArray();
            all.append(String.format(
                    Locale.ROOT, ",\"%s_median\":%.4f,\"%s_p25\":%.4f,\"%s_p75\":%.4f",
                    what, Pairs.quantile(sorted, 0.5),
                    what, Pairs.quantile(sorted, 0.25),
                    what, Pairs.quantile(sorted, 0.75)));
        });
        return all.toString();
    }
}
