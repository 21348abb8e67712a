// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.*;

import java.lang.instrument.Instrumentation;
import java.lang.invoke.MethodHandles;
import java.util.Map;
import java.util.Set;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;

/**
 * Creation of a class whose static method is called from all classes. The class is in java.lang
 * because every class loader, whatever its rules, asks the boot loader for {@code java.*}, and
 * because the JIT accepts {@code @ForceInline} there.
 */
final class BootClass {
    static final String UNSAFE = "jdk/internal/misc/Unsafe";

    private BootClass() {}

    /** Returns whether another agent has defined the class already. */
    static boolean isDefined(String name) {
        try {
            Class.forName(name.replace('/', '.'), false, null);
            return true;
        } catch (ClassNotFoundException e) {
            return false;
        }
    }

    /** Defines a class in the package java.lang of the module java.base. */
    static Class<?> define(Instrumentation instrumentation, byte[] bytes) throws IllegalAccessException {
        instrumentation.redefineModule(
                Object.class.getModule(),
                Set.of(),
                Map.of(),
                Map.of("java.lang", Set.of(BootClass.class.getModule())),
                Set.of(),
                Map.of());
        return MethodHandles.privateLookupIn(Object.class, MethodHandles.lookup()).defineClass(bytes);
    }

    static ClassWriter writer(String name) {
        ClassWriter cw = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        cw.visit(V11, ACC_PUBLIC | ACC_FINAL | ACC_SUPER | ACC_SYNTHETIC, name, null, "java/lang/Object", null);
        return cw;
    }

    /** Returns the visitor of a new static method that the JIT inlines at every call. */
    static MethodVisitor inlinedMethod(ClassWriter cw, String name, String descriptor) {
        MethodVisitor mv = cw.visitMethod(ACC_PUBLIC | ACC_STATIC, name, descriptor, null, null);
        mv.visitAnnotation("Ljdk/internal/vm/annotation/ForceInline;", true).visitEnd();
        mv.visitCode();
        return mv;
    }

    static void pushUnsafe(MethodVisitor mv) {
        mv.visitMethodInsn(INVOKESTATIC, UNSAFE, "getUnsafe", "()L" + UNSAFE + ";", false);
    }

    /** Ends a method that returns nothing. */
    static void end(MethodVisitor mv) {
        mv.visitInsn(RETURN);
        mv.visitMaxs(0, 0);
        mv.visitEnd();
    }
}
