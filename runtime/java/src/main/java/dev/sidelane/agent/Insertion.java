// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import org.objectweb.asm.MethodVisitor;

/**
 * Code that is inserted at points. It takes no value from the operand stack, leaves none there and
 * has no jumps, so stack map frames stay valid.
 */
interface Insertion {
    /** Writes the inserted code at the current place in the method. */
    void insert(MethodVisitor method, Point point);

    /** Returns the number of operand stack slots that the inserted code needs. */
    int stackSlots();
}
