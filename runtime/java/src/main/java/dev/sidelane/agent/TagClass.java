// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.*;

import java.util.function.ToIntFunction;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;

/**
 * Makes the class whose {@code set(int)} is called from all classes, so that an observer on another
 * CPU sees which method and loop runs (thesis "SHIM and Its Applications", section 3.6.1):
 *
 * <pre>
 * public final class java.lang.SidelaneTag {
 *     &#64;ForceInline public static void set(int id) {
 *         Unsafe.getUnsafe().putLong(null, ADDRESS, id);
 *     }
 * }
 * </pre>
 *
 * The address is a constant of the class: compiled code has one store of a constant, and no branch.
 * The store is a plain one. If two stores follow each other, the JIT may leave out the first. It
 * may also move a store out of a counted loop, usually to the loop's beginning: the tag then names
 * the loop in time, but is not stored again at every turn. An exact store ({@code putLongOpaque})
 * is made at every point, and limits the optimiser.
 */
final class TagClass {
    static final String NAME = "java/lang/SidelaneTag";
    static final String METHOD = "set";
    static final String DESCRIPTOR = "(I)V";

    private TagClass() {}

    /** Returns an insertion that calls {@code tagClass.set(id)} with the point's number. */
    static Insertion calls(String tagClass, ToIntFunction<Point> ids) {
        return new Insertion() {
            @Override
            public void insert(MethodVisitor method, Point point) {
                int id = ids.applyAsInt(point);
                if (id <= Short.MAX_VALUE) {
                    method.visitIntInsn(SIPUSH, id);
                } else {
                    method.visitLdcInsn(id);
                }
                method.visitMethodInsn(INVOKESTATIC, tagClass, METHOD, DESCRIPTOR, false);
            }

            @Override
            public int stackSlots() {
                return 1;
            }
        };
    }

    static byte[] bytes(long address, boolean exact) {
        ClassWriter cw = BootClass.writer(NAME);
        MethodVisitor mv = BootClass.inlinedMethod(cw, METHOD, DESCRIPTOR);
        BootClass.pushUnsafe(mv);
        mv.visitInsn(ACONST_NULL);
        mv.visitLdcInsn(address);
        mv.visitVarInsn(ILOAD, 0);
        mv.visitInsn(I2L);
        mv.visitMethodInsn(INVOKEVIRTUAL, BootClass.UNSAFE, exact ? "putLongOpaque" : "putLong", "(Ljava/lang/Object;JJ)V", false);
        BootClass.end(mv);
        cw.visitEnd();
        return cw.toByteArray();
    }
}
