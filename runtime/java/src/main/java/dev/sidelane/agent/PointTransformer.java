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
import org.objectweb.asm.Type;

/**
 * Transformer that inserts code into the classes in scope, at method entries and loops. A class
 * that it cannot transform stays unchanged.
 */
final class PointTransformer implements ClassFileTransformer {
    /** Largest method that HotSpot compiles, in bytes (HugeMethodLimit). */
    private static final int COMPILED_SIZE_MAX = 8000;

    /** Largest method that the class file format allows, in bytes. */
    private static final int CODE_SIZE_MAX = 65535;

    private final Options options;
    private final Scope scope;
    private final Insertion insertion;
    private final CallGraph calls = new CallGraph();

    PointTransformer(Options options, Scope scope, Insertion insertion) {
        this.options = options;
        this.scope = scope;
        this.insertion = insertion;
    }

    /**
     * Loads all classes that a transformation needs, so that no class is loaded during a
     * transformation. For the same reason the transformer uses no streams.
     */
    void rehearse() throws IOException {
        try (InputStream in = PointTransformer.class.getResourceAsStream("PointTransformer.class")) {
            new PointTransformer(options, scope, insertion).instrument(in.readAllBytes());
        }
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
        if (!scope.covers(loader, name)) {
            return null;
        }
        try {
            return instrument(bytes);
        } catch (RuntimeException | LinkageError e) {
            options.log("class " + name + " stays as it is: " + e);
            return null;
        }
    }

    /** Returns the class with points, or null if it needs none. */
    byte[] instrument(byte[] bytes) {
        ClassReader reader = new ClassReader(bytes);
        Set<String> entered = scope.everyMethod() ? Set.of() : recursive(reader);
        Set<String> overloaded = overloaded(reader);
        Set<String> leftAlone = new HashSet<>();
        while (true) {
            Rewriter rewriter = new Rewriter(reader, entered, overloaded, leftAlone);
            Set<String> tooLarge = rewriter.run();
            if (tooLarge.isEmpty()) {
                return rewriter.sites() == 0 ? null : rewriter.bytes();
            }
            tooLarge.forEach(m -> options.log("method " + reader.getClassName() + "." + m
                    + " stays as it is: it would become too large for the JIT or the class file"));
            leftAlone.addAll(tooLarge);
        }
    }

    /**
     * Returns the keys (name and descriptor) of the methods that need a point at their entry, so
     * that every recursion has one.
     */
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

    /** Returns the names that several methods of the class share. */
    private static Set<String> overloaded(ClassReader reader) {
        Set<String> seen = new HashSet<>();
        Set<String> overloaded = new HashSet<>();
        ClassVisitor finder = new ClassVisitor(ASM9) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
                if (!seen.add(name)) {
                    overloaded.add(name);
                }
                return null;
            }
        };
        reader.accept(finder, ClassReader.SKIP_CODE | ClassReader.SKIP_DEBUG);
        return overloaded;
    }

    /** Visitor for one pass over a class. Methods without points are copied unchanged. */
    private final class Rewriter extends ClassVisitor {
        private final ClassReader reader;
        private final ClassWriter writer;
        private final Set<String> entered;
        private final Set<String> overloaded;
        private final Set<String> leftAlone;
        private final Map<String, PointInserter> inserters = new HashMap<>();
        private boolean hasFrames;

        Rewriter(ClassReader reader, Set<String> entered, Set<String> overloaded, Set<String> leftAlone) {
            super(ASM9);
            this.reader = reader;
            this.writer = new ClassWriter(reader, 0);
            this.cv = writer;
            this.entered = entered;
            this.overloaded = overloaded;
            this.leftAlone = leftAlone;
        }

        /**
         * Rewrites the class. Returns the keys (name and descriptor) of the methods that became too
         * large.
         */
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

        private boolean isTooLarge(PointInserter inserter) {
            int limit = inserter.codeSizeBefore() <= COMPILED_SIZE_MAX ? COMPILED_SIZE_MAX : CODE_SIZE_MAX;
            return inserter.sites() > 0 && inserter.codeSize() > limit;
        }

        int sites() {
            return inserters.values().stream().mapToInt(PointInserter::sites).sum();
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
            if (name.equals("<clinit>") || isFinalizer(key) || leftAlone.contains(key)) {
                return next;
            }
            PointInserter inserter =
                    new PointInserter(next, insertion, shown(name, descriptor), where(name, key));
            inserters.put(key, inserter);
            return inserter;
        }

        /**
         * Returns whether a method is a finalizer. The JVM does not register objects whose
         * finalizer is empty; a point would make the finalizer non-empty.
         */
        private boolean isFinalizer(String key) {
            return key.equals("finalize()V");
        }

        private PointInserter.Where where(String name, String key) {
            PointInserter.Where where = new PointInserter.Where();
            where.entry = options.entries() && (scope.everyMethod() || entered.contains(key));
            where.exits = where.entry && scope.exits();
            where.loops = options.loops();
            where.isConstructor = name.equals("<init>");
            where.hasFrames = hasFrames;
            return where;
        }

        /**
         * Returns the method's name in points, with its arguments if several methods share the
         * name.
         */
        private String shown(String name, String descriptor) {
            StringBuilder shown = new StringBuilder(reader.getClassName().replace('/', '.'));
            shown.append('.').append(name);
            if (overloaded.contains(name)) {
                char separator = '(';
                for (Type argument : Type.getArgumentTypes(descriptor)) {
                    String type = argument.getClassName();
                    shown.append(separator).append(type, type.lastIndexOf('.') + 1, type.length());
                    separator = ',';
                }
                shown.append(separator == '(' ? "()" : ")");
            }
            return shown.toString();
        }
    }
}
