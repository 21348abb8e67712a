// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.*;

import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;

/** Adds checks to the classes in scope. A class that it cannot handle stays as it is. */
final class GateTransformer implements ClassFileTransformer {
    /** HotSpot never compiles a method of more bytes (HugeMethodLimit). */
    private static final int COMPILED_SIZE_MAX = 8000;

    /** The class file format holds no larger method. */
    private static final int CODE_SIZE_MAX = 65535;

    private final Options options;
    private final String checkClass;
    private final CallGraph calls = new CallGraph();

    GateTransformer(Options options) {
        this(options, CheckClass.NAME);
    }

    /** Calls {@code checkClass.check()}. */
    GateTransformer(Options options, String checkClass) {
        this.options = options;
        this.checkClass = checkClass;
    }

    /** Has all classes loaded that a transformation needs, so that none is loaded amid one. */
    static void rehearse(Options options) throws IOException {
        try (InputStream in = GateTransformer.class.getResourceAsStream("GateTransformer.class")) {
            new GateTransformer(options).instrument(in.readAllBytes());
        }
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
        if (!options.scope().covers(loader, name)) {
            return null;
        }
        try {
            return instrument(bytes);
        } catch (RuntimeException | LinkageError e) {
            options.log("class " + name + " stays as it is: " + e);
            return null;
        }
    }

    /** The class with checks, or null if it needs none. */
    byte[] instrument(byte[] bytes) {
        ClassReader reader = new ClassReader(bytes);
        Set<String> recursive = recursive(reader);
        Set<String> leftAlone = new HashSet<>();
        while (true) {
            Rewriter rewriter = new Rewriter(reader, recursive, leftAlone);
            Set<String> tooLarge = rewriter.run();
            if (tooLarge.isEmpty()) {
                return rewriter.sites() == 0 ? null : rewriter.bytes();
            }
            tooLarge.forEach(m -> options.log("method " + reader.getClassName() + "." + m
                    + " stays as it is: checks would make it too large for the JIT or the class file"));
            leftAlone.addAll(tooLarge);
        }
    }

    /** Keys of the methods that have to check at their entry. */
    private Set<String> recursive(ClassReader reader) {
        Set<String> recursive = new HashSet<>();
        if (options.entries() && Scope.entries(reader.getClassName())) {
            for (CallFinder.Method method : CallFinder.in(reader)) {
                if (calls.needsCheck(method.key, method.callees)) {
                    recursive.add(method.key);
                }
            }
        }
        return recursive;
    }

    /** One pass over a class. Methods that get no check are copied as they are. */
    private final class Rewriter extends ClassVisitor {
        private final ClassReader reader;
        private final ClassWriter writer;
        private final Set<String> recursive;
        private final Set<String> leftAlone;
        private final Map<String, CheckInserter> inserters = new HashMap<>();
        private boolean hasFrames;

        Rewriter(ClassReader reader, Set<String> recursive, Set<String> leftAlone) {
            super(ASM9);
            this.reader = reader;
            this.writer = new ClassWriter(reader, 0);
            this.cv = writer;
            this.recursive = recursive;
            this.leftAlone = leftAlone;
        }

        /** Keys of the methods that became too large. */
        Set<String> run() {
            reader.accept(this, 0);
            Set<String> tooLarge = new HashSet<>();
            inserters.forEach((key, inserter) -> {
                if (isTooLarge(inserter)) {
                    tooLarge.add(key);
                }
            });
            return tooLarge;
        }

        private boolean isTooLarge(CheckInserter inserter) {
            int before = inserter.codeSize() - inserter.sites() * CheckClass.CALL_SIZE;
            int limit = before <= COMPILED_SIZE_MAX ? COMPILED_SIZE_MAX : CODE_SIZE_MAX;
            return inserter.sites() > 0 && inserter.codeSize() > limit;
        }

        int sites() {
            return inserters.values().stream().mapToInt(CheckInserter::sites).sum();
        }

        byte[] bytes() {
            return writer.toByteArray();
        }

        @Override
        public void visit(int version, int access, String name, String signature, String superName, String[] interfaces) {
            super.visit(version, access, name, signature, superName, interfaces);
            hasFrames = (version & 0xffff) >= V1_6;
        }

        @Override
        public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
            MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
            String key = name + descriptor;
            if (name.equals("<clinit>") || leftAlone.contains(key)) {
                return next;
            }
            CheckInserter inserter = new CheckInserter(
                    next, checkClass, recursive.contains(key), options.loops(), name.equals("<init>"), hasFrames);
            inserters.put(key, inserter);
            return inserter;
        }
    }
}
