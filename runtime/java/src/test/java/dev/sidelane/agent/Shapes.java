// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.ArrayList;
import java.util.List;
import java.util.function.IntUnaryOperator;

/**
 * Loops and recursions as javac compiles them. Each takes at least n turns and returns a result of
 * its work.
 */
public final class Shapes {
    private final long built;

    Shapes(int n) {
        this(n, new StringBuilder(n > 0 ? new String("x") : "").length());
    }

    private Shapes(int n, int more) {
        long sum = more;
        for (int i = 0; i < n; i++) {
            sum += i;
        }
        built = sum;
    }

    public static long constructorLoop(int n) {
        return new Shapes(n).built;
    }

    public static long forLoop(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) {
            sum += i;
        }
        return sum;
    }

    public static long doWhile(int n) {
        long sum = 0;
        int i = n;
        do {
            sum = sum * 31 + i;
        } while (i-- > 0);
        return sum;
    }

    public static long nestedWithLabels(int n) {
        long sum = 0;
        outer:
        for (int i = 0; i < n; i++) {
            for (int j = 0; ; j++) {
                if (j == 3) {
                    continue outer;
                }
                if (i == n - 1) {
                    break outer;
                }
                sum += i ^ j;
            }
        }
        return sum;
    }

    public static long retries(int n) {
        long caught = 0;
        while (true) {
            try {
                if (caught < n) {
                    throw new IllegalStateException();
                }
                return caught;
            } catch (IllegalStateException e) {
                caught++;
            } finally {
                caught += 0;
            }
        }
    }

    public static long switchLoop(int n) {
        long sum = 0;
        int state = 0;
        for (int i = 0; i < 2 * n; i++) {
            switch (state) {
                case 0: state = 1; continue;
                case 1: state = 2; sum++; break;
                default: state = 0; sum += 2;
            }
        }
        return sum;
    }

    public static long synchronizedLoop(int n) {
        Object lock = new Object();
        long sum = 0;
        for (int i = 0; i < n; i++) {
            synchronized (lock) {
                sum += i;
            }
        }
        return sum;
    }

    public static long longsOnTheStack(int n) {
        long sum = 1;
        for (int i = 0; i < n; i++) {
            sum = sum * 3 + (i % 2 == 0 ? sum : forLoop(2));
        }
        return sum;
    }

    public static long recursion(int n) {
        return n == 0 ? 1 : recursion(n - 1) + n;
    }

    public static long mutualRecursion(int n) {
        return n == 0 ? 0 : other(n);
    }

    private static long other(int n) {
        return mutualRecursion(n - 1) + 1;
    }

    /** A lambda calls the method that created it; the JDK runs the lambda. */
    public static long recursionThroughLambda(int n) {
        if (n == 0) {
            return 0;
        }
        IntUnaryOperator next = m -> (int) recursionThroughLambda(m);
        return 1 + next.applyAsInt(n - 1);
    }

    public static long constructorRecursion(int n) {
        return new Chain(n).length;
    }

    public static long forEach(int n) {
        List<Integer> list = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            list.add(i);
        }
        long sum = 0;
        for (int i : list) {
            sum += i;
        }
        return sum;
    }

    private static final class Chain {
        final long length;

        Chain(int n) {
            super();
            length = n == 0 ? 0 : new Chain(n - 1).length + 1;
        }
    }
}
