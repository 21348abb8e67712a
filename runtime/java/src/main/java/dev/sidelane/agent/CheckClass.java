// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.*;

import java.lang.instrument.Instrumentation;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;

/**
 * Makes the class whose {@code check()} is called from all classes:
 *
 * <pre>
 * public final class java.lang.SidelaneCheck {
 *     private static final long ADDRESS;
 *     static {
 *         System.load(LIBRARY);
 *         ADDRESS = trainingWord();
 *         for (int i = ROUNDS; i != 0; i--) check();
 *         ADDRESS = gateWord();
 *     }
 *     &#64;ForceInline public static void check() {
 *         if (Unsafe.getUnsafe().getIntVolatile(null, ADDRESS) != 0) nap();
 *     }
 *     public static native void nap();
 *     public static native boolean promise();
 *     public static native long gateWord();
 *     public static native long trainingWord();
 * }
 * </pre>
 *
 * The load is volatile: the JIT may move a plain load out of a loop, and the loop would go on
 * beside a request. The static block teaches the JIT's profile that the branch is sometimes taken.
 * Compiled code would otherwise leave the branch out, and the first nap of each method would begin
 * with a deoptimisation, which takes longer than a short request. To the JIT a final field is a
 * constant only after its class is initialised, so the training can read another word than the
 * program does.
 */
final class CheckClass {
    static final String NAME = "java/lang/SidelaneCheck";
    static final String METHOD = "check";
    static final String DESCRIPTOR = "()V";

    /**
     * Number of training calls: enough for HotSpot to start a profile, which it does after 200
     * calls, in the background.
     */
    private static final int TRAINING_ROUNDS = 3000;

    private CheckClass() {}

    /** Returns an insertion that calls {@code checkClass.check()}: three bytes. */
    static Insertion calls(String checkClass) {
        return new Insertion() {
            @Override
            public void insert(MethodVisitor method, Point point) {
                method.visitMethodInsn(INVOKESTATIC, checkClass, METHOD, DESCRIPTOR, false);
            }

            @Override
            public int stackSlots() {
                return 0;
            }
        };
    }

    /**
     * Defines the class of the checks and initialises it. Returns false if this process has no
     * gate.
     */
    static boolean define(Instrumentation instrumentation, String library) throws ReflectiveOperationException {
        Class<?> check = BootClass.define(instrumentation, bytes(library));
        return (long) check.getMethod("gateWord").invoke(null) != 0;
    }

    /**
     * Announces this thread, and threads that are started later, to the gate: they promise to
     * check.
     */
    static boolean promise() throws ReflectiveOperationException {
        return (boolean) Class.forName(NAME.replace('/', '.'), true, null).getMethod("promise").invoke(null);
    }

    static byte[] bytes(String library) {
        ClassWriter cw = BootClass.writer(NAME);
        cw.visitField(ACC_PRIVATE | ACC_STATIC | ACC_FINAL, "ADDRESS", "J", null, null).visitEnd();
        initialiser(cw, library);
        check(cw);
        nativeMethod(cw, "nap", DESCRIPTOR);
        nativeMethod(cw, "promise", "()Z");
        nativeMethod(cw, "gateWord", "()J");
        nativeMethod(cw, "trainingWord", "()J");
        cw.visitEnd();
        return cw.toByteArray();
    }

    private static void nativeMethod(ClassWriter cw, String name, String descriptor) {
        cw.visitMethod(ACC_PUBLIC | ACC_STATIC | ACC_NATIVE, name, descriptor, null, null).visitEnd();
    }

    private static void initialiser(ClassWriter cw, String library) {
        MethodVisitor mv = cw.visitMethod(ACC_STATIC, "<clinit>", "()V", null, null);
        mv.visitCode();
        mv.visitLdcInsn(library);
        mv.visitMethodInsn(INVOKESTATIC, "java/lang/System", "load", "(Ljava/lang/String;)V", false);
        setAddress(mv, "trainingWord");
        mv.visitIntInsn(SIPUSH, TRAINING_ROUNDS);
        mv.visitVarInsn(ISTORE, 0);
        Label again = new Label();
        mv.visitLabel(again);
        mv.visitFrame(F_APPEND, 1, new Object[] {INTEGER}, 0, null);
        mv.visitMethodInsn(INVOKESTATIC, NAME, METHOD, DESCRIPTOR, false);
        mv.visitIincInsn(0, -1);
        mv.visitVarInsn(ILOAD, 0);
        mv.visitJumpInsn(IFNE, again);
        setAddress(mv, "gateWord");
        BootClass.end(mv);
    }

    private static void setAddress(MethodVisitor mv, String word) {
        mv.visitMethodInsn(INVOKESTATIC, NAME, word, "()J", false);
        mv.visitFieldInsn(PUTSTATIC, NAME, "ADDRESS", "J");
    }

    private static void check(ClassWriter cw) {
        MethodVisitor mv = BootClass.inlinedMethod(cw, METHOD, DESCRIPTOR);
        BootClass.pushUnsafe(mv);
        mv.visitInsn(ACONST_NULL);
        mv.visitFieldInsn(GETSTATIC, NAME, "ADDRESS", "J");
        mv.visitMethodInsn(INVOKEVIRTUAL, BootClass.UNSAFE, "getIntVolatile", "(Ljava/lang/Object;J)I", false);
        Label open = new Label();
        mv.visitJumpInsn(IFEQ, open);
        mv.visitMethodInsn(INVOKESTATIC, NAME, "nap", DESCRIPTOR, false);
        mv.visitLabel(open);
        mv.visitFrame(F_SAME, 0, null, 0, null);
        BootClass.end(mv);
    }
}
