// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.objectweb.asm.Opcodes.*;

import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;

/** Tests with bytecode that javac does not generate: {@code static int f(int n)} of a class. */
class BytecodeTest {
    private static final int TURNS = 50;

    /** Every turn of the loop ends with an exception, whose handler is the loop's head. */
    @Test
    void aHandlerIsTheHeadOfALoop() throws Exception {
        byte[] loop = method(V11, mv -> {
            Label head = new Label();
            Label end = new Label();
            Label done = new Label();
            mv.visitTryCatchBlock(head, end, head, "java/lang/ArithmeticException");
            mv.visitInsn(ACONST_NULL);
            mv.visitLabel(head);
            mv.visitFrame(F_NEW, 1, new Object[] {INTEGER}, 1, new Object[] {"java/lang/ArithmeticException"});
            mv.visitInsn(POP);
            mv.visitIincInsn(0, -1);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitJumpInsn(IFLE, done);
            mv.visitInsn(ICONST_1);
            mv.visitInsn(ICONST_0);
            mv.visitInsn(IDIV);
            mv.visitVarInsn(ISTORE, 0);
            mv.visitLabel(end);
            mv.visitLabel(done);
            mv.visitFrame(F_NEW, 1, new Object[] {INTEGER}, 0, null);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(IRETURN);
        });
        assertEquals(0, checked(loop));
        assertTrue(CountingCheck.count >= TURNS - 1, "only " + CountingCheck.count + " checks");
    }

    /** A loop that other code enters at two places, which javac never generates. */
    @Test
    void anIrreducibleLoop() throws Exception {
        byte[] loop = method(V11, mv -> {
            Object[] locals = {INTEGER};
            Label one = new Label();
            Label two = new Label();
            Label done = new Label();
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(ICONST_1);
            mv.visitInsn(IAND);
            mv.visitJumpInsn(IFEQ, two);
            mv.visitLabel(one);
            mv.visitFrame(F_NEW, 1, locals, 0, null);
            mv.visitIincInsn(0, -1);
            mv.visitLabel(two);
            mv.visitFrame(F_NEW, 1, locals, 0, null);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitJumpInsn(IFLE, done);
            mv.visitJumpInsn(GOTO, one);
            mv.visitLabel(done);
            mv.visitFrame(F_NEW, 1, locals, 0, null);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(IRETURN);
        });
        assertEquals(0, checked(loop));
        assertEquals(TURNS, CountingCheck.count);
    }

    /**
     * The method has a switch whose labels are all backwards, in a class too old for stack map
     * frames.
     */
    @Test
    void aSwitchBackwardsInAnOldClass() throws Exception {
        byte[] loop = method(V1_4, mv -> {
            Label head = new Label();
            Label done = new Label();
            mv.visitLabel(head);
            mv.visitIincInsn(0, -1);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitJumpInsn(IFLE, done);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitTableSwitchInsn(0, 1, head, head, head);
            mv.visitLabel(done);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(IRETURN);
        });
        assertEquals(0, checked(loop));
        assertEquals(TURNS - 1, CountingCheck.count);
    }

    /** HotSpot compiles no method above 8000 bytes, so a method of that size gets no check. */
    @Test
    void aMethodAtTheLimitOfTheJitIsLeftAlone() {
        assertNull(transformer().instrument(countdown(8000)));
    }

    @Test
    void aMethodAtTheLimitOfTheClassFileIsLeftAlone() {
        assertNull(transformer().instrument(countdown(65535)));
    }

    @Test
    void aMethodBeyondTheJitGetsItsChecks() throws Exception {
        assertEquals(0, checked(countdown(30000)));
        assertEquals(TURNS, CountingCheck.count);
    }

    @Test
    void aClassWithoutLoopsOrRecursionIsLeftAlone() {
        assertNull(transformer().instrument(method(V11, mv -> {
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(IRETURN);
        })));
    }

    /** With code in the finalizer, the JVM would register every object for finalization. */
    @Test
    void anEmptyFinalizerStaysEmpty() {
        ClassWriter cw = new ClassWriter(0);
        cw.visit(V11, ACC_PUBLIC, "a/B", null, "java/lang/Object", null);
        MethodVisitor mv = cw.visitMethod(ACC_PROTECTED, "finalize", "()V", null, null);
        mv.visitCode();
        mv.visitInsn(RETURN);
        mv.visitMaxs(0, 1);
        mv.visitEnd();
        cw.visitEnd();
        assertNull(CountingTag.transformer("tag=t;every-method;exits").instrument(cw.toByteArray()));
    }

    @Test
    void aClassOfTheFutureIsLeftAlone() {
        byte[] bytes = countdown(100);
        bytes[7] = (byte) 200;
        assertNull(transformer().transform(getClass().getClassLoader(), "a/B", null, null, bytes));
    }

    /** Returns a class with a loop in a method of {@code size} bytes. */
    private static byte[] countdown(int size) {
        int around = 15;
        return method(V1_5, mv -> {
            Label head = new Label();
            for (int i = 0; i < size - around; i++) {
                mv.visitInsn(NOP);
            }
            mv.visitLabel(head);
            mv.visitIincInsn(0, -1);
            mv.visitInsn(NOP);
            mv.visitInsn(NOP);
            mv.visitInsn(NOP);
            mv.visitInsn(NOP);
            mv.visitInsn(NOP);
            mv.visitInsn(NOP);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitJumpInsn(IFGT, head);
            mv.visitVarInsn(ILOAD, 0);
            mv.visitInsn(IRETURN);
        });
    }

    private static byte[] method(int version, Consumer<MethodVisitor> code) {
        ClassWriter cw = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        cw.visit(version, ACC_PUBLIC, "a/B", null, "java/lang/Object", null);
        MethodVisitor mv = cw.visitMethod(ACC_PUBLIC | ACC_STATIC, "f", "(I)I", null, null);
        mv.visitCode();
        code.accept(mv);
        mv.visitMaxs(0, 0);
        mv.visitEnd();
        cw.visitEnd();
        return cw.toByteArray();
    }

    private static PointTransformer transformer() {
        return CountingCheck.transformer();
    }

    private static Object checked(byte[] before) throws Exception {
        Class<?> plain = new Loader().with("a.B", before).loadClass("a.B");
        Class<?> checked = new Loader().with("a.B", transformer().instrument(before)).loadClass("a.B");
        Object expected = plain.getMethod("f", int.class).invoke(null, TURNS);
        CountingCheck.count = 0;
        Object result = checked.getMethod("f", int.class).invoke(null, TURNS);
        assertEquals(expected, result);
        return result;
    }
}
