// SPDX-License-Identifier: Apache-2.0
import org.python.core.Py;
import org.python.core.PyFunction;
import org.python.util.PythonInterpreter;

/**
 * Benchmark that runs a Python program: planets, queens, words and sorting. Argument: the number of
 * warm-up rounds.
 */
public final class JythonWork {
    private static final String PROGRAM = String.join("\n",
            "def planets(steps):",
            "    bodies = [[i * 1.5, i * 0.5, 0.0, 0.1 * i, 1.0 + i] for i in range(5)]",
            "    for step in range(steps):",
            "        for a in bodies:",
            "            for b in bodies:",
            "                if a is not b:",
            "                    dx = a[0] - b[0]",
            "                    dy = a[1] - b[1]",
            "                    pull = b[4] * 0.001 / ((dx * dx + dy * dy + 0.01) ** 1.5)",
            "                    a[2] -= dx * pull",
            "                    a[3] -= dy * pull",
            "        for a in bodies:",
            "            a[0] += a[2] * 0.01",
            "            a[1] += a[3] * 0.01",
            "    return int(sum([a[0] for a in bodies]) * 1000)",
            "",
            "def queens(n, row, columns, up, down):",
            "    if row == n:",
            "        return 1",
            "    found = 0",
            "    for c in range(n):",
            "        if c not in columns and row + c not in up and row - c not in down:",
            "            found += queens(n, row + 1, columns | set([c]), up | set([row + c]), down | set([row - c]))",
            "    return found",
            "",
            "class Word(object):",
            "    def __init__(self, text):",
            "        self.text = text",
            "        self.count = 0",
            "    def seen(self):",
            "        self.count += 1",
            "        return self.count",
            "",
            "def words(n):",
            "    known = {}",
            "    seed = 1",
            "    total = 0",
            "    for i in range(n):",
            "        seed = (seed * 1103515245 + 12345) % 2147483648",
            "        text = 'w%d' % (seed // 65536 % 500)",
            "        word = known.get(text)",
            "        if word is None:",
            "            word = known[text] = Word(text)",
            "        total += word.seen()",
            "    most = sorted(known.values(), key=lambda w: (-w.count, w.text))",
            "    return total + len(','.join([w.text.upper() for w in most]))",
            "",
            "def work():",
            "    return planets(400) + queens(7, 0, set(), set(), set()) + words(15000)");

    private JythonWork() {}

    public static void main(String[] args) throws Exception {
        try (PythonInterpreter python = new PythonInterpreter()) {
            python.exec(PROGRAM);
            PyFunction work = python.get("work", PyFunction.class);
            Timed.rounds(Integer.parseInt(args[0]), () -> Py.tojava(work.__call__(), Long.class));
        }
    }
}
