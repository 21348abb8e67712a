// SPDX-License-Identifier: Apache-2.0
//
// A Java program that makes garbage: a stock JVM that pauses some times a second.
final class Garbage {
    public static void main(String[] args) throws InterruptedException {
        Object[] kept = new Object[4096];
        for (long turn = 0;; turn++) {
            kept[(int) (turn % kept.length)] = new byte[4096];
            if (turn % 1024 == 0) {
                Thread.sleep(1);
            }
        }
    }
}
