// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import org.objectweb.asm.MethodVisitor;

/**
 * What is inserted at points. It takes nothing from the operand stack, leaves nothing there and
 * has no jumps, so that stack map frames stay valid.
 */
interface Insertion {
    /** Writes it where the method is now. */
    void insert(MethodVisitor method, Point point);

    /** Slots of the operand stack that it needs meanwhile. */
    int stackSlots();
}
