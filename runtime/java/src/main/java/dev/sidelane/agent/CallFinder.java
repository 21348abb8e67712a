// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.ASM9;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.Handle;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Type;

/** Visitor that finds which methods each method of a class may call. */
final class CallFinder extends ClassVisitor {
    /** JDK classes whose methods call no method of the program if their arguments are plain. */
    private static final Set<String> SELF_CONTAINED = Set.of(
            "java/lang/Math", "java/lang/StrictMath", "java/lang/Integer", "java/lang/Long",
            "java/lang/Short", "java/lang/Byte", "java/lang/Character", "java/lang/Boolean",
            "java/lang/Float", "java/lang/Double", "java/lang/String", "java/lang/StringBuilder",
            "java/lang/System");

    /** Method, and the methods that it may call; keys are name and descriptor. */
    static final class Method {
        final String key;
        final Set<String> callees = new HashSet<>();
        private int instructions;

        Method(String key) {
            this.key = key;
        }
    }

    private final List<Method> methods = new ArrayList<>();

    private CallFinder() {
        super(ASM9);
    }

    /**
     * Returns the methods of a class, small methods first. The last method of a cycle of calls gets
     * the check; so it is a large one, which is called less often.
     */
    static List<Method> in(ClassReader reader) {
        CallFinder finder = new CallFinder();
        reader.accept(finder, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
        finder.methods.sort(Comparator.comparingInt(m -> m.instructions));
        return finder.methods;
    }

    @Override
    public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
        Method method = new Method(name + descriptor);
        methods.add(method);
        return new MethodCalls(method);
    }

    private static final class MethodCalls extends MethodVisitor {
        private final Method method;

        MethodCalls(Method method) {
            super(ASM9);
            this.method = method;
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            method.instructions++;
            if (isSelfContained(owner, name, descriptor)) {
                return;
            }
            method.callees.add(name + descriptor);
            if (Scope.isJdk(owner)) {
                method.callees.add(CallGraph.JDK);
            }
        }

        /**
         * Handles the creation of a lambda: the creating method counts as the lambda's caller,
         * since it is about to pass the lambda on.
         */
        @Override
        public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
            method.instructions++;
            for (Object argument : arguments) {
                if (argument instanceof Handle) {
                    Handle body = (Handle) argument;
                    method.callees.add(body.getName() + body.getDesc());
                }
            }
            if (!isPlain(descriptor)) {
                method.callees.add(CallGraph.JDK);
            }
        }

        @Override
        public void visitInsn(int opcode) {
            method.instructions++;
        }

        @Override
        public void visitVarInsn(int opcode, int variable) {
            method.instructions++;
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            method.instructions++;
        }
    }

    static boolean isSelfContained(String owner, String name, String descriptor) {
        if (owner.equals("java/lang/Object")) {
            return name.equals("<init>") || name.equals("getClass");
        }
        return owner.startsWith("[") || SELF_CONTAINED.contains(owner) && isPlain(descriptor);
    }

    /**
     * Returns whether a type is plain: numbers, strings and arrays of numbers, which have no
     * methods that a program could override.
     */
    private static boolean isPlain(String descriptor) {
        for (Type argument : Type.getArgumentTypes(descriptor)) {
            Type element = argument.getSort() == Type.ARRAY ? argument.getElementType() : argument;
            if (element.getSort() == Type.OBJECT && !element.getInternalName().equals("java/lang/String")) {
                return false;
            }
        }
        return true;
    }
}
