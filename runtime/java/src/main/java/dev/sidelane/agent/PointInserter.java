// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.objectweb.asm.Opcodes.*;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;

/**
 * Puts a check at the entry of a method and before each jump backwards. However a loop is shaped,
 * one of its edges goes backwards, or throws to a handler that is further up; so no loop runs
 * without a check.
 *
 * A check takes nothing from the operand stack, leaves nothing there, and is no target of a jump:
 * stack map frames and maximal stack stay valid, and no class has to be looked up to compute them.
 */
final class CheckInserter extends MethodVisitor {
    private final String checkClass;
    private final boolean atEntry;
    private final boolean atLoops;
    private final boolean isConstructor;
    private final boolean hasFrames;
    private final Set<Label> visited = new HashSet<>();
    /** The ends of the ranges that a handler protects. */
    private final Map<Label, Set<Label>> protectedEnds = new HashMap<>();
    private boolean atLoopingHandler;
    private int pendingNews;
    private boolean entered;
    private int sites;
    private int codeSize;

    CheckInserter(
            MethodVisitor next,
            String checkClass,
            boolean atEntry,
            boolean atLoops,
            boolean isConstructor,
            boolean hasFrames) {
        super(ASM9, next);
        this.checkClass = checkClass;
        this.hasFrames = hasFrames;
        this.atEntry = atEntry;
        this.atLoops = atLoops;
        this.isConstructor = isConstructor;
    }

    /** Checks inserted so far. */
    int sites() {
        return sites;
    }

    /** Bytes of code, checks included; known when the method was visited. */
    int codeSize() {
        return codeSize;
    }

    @Override
    public void visitCode() {
        super.visitCode();
        if (!isConstructor) {
            enter();
        }
    }

    private void enter() {
        if (!entered && atEntry) {
            check();
        }
        entered = true;
    }

    private void check() {
        super.visitMethodInsn(INVOKESTATIC, checkClass, CheckClass.METHOD, CheckClass.DESCRIPTOR, false);
        sites++;
    }

    @Override
    public void visitTypeInsn(int opcode, String type) {
        super.visitTypeInsn(opcode, type);
        if (opcode == NEW) {
            pendingNews++;
        }
    }

    /** A constructor is entered when super() or this() has returned. */
    @Override
    public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
        super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
        if (opcode == INVOKESPECIAL && name.equals("<init>") && pendingNews-- == 0) {
            enter();
        }
    }

    @Override
    public void visitTryCatchBlock(Label start, Label end, Label handler, String type) {
        super.visitTryCatchBlock(start, end, handler, type);
        protectedEnds.computeIfAbsent(handler, h -> new HashSet<>()).add(end);
    }

    @Override
    public void visitLabel(Label label) {
        super.visitLabel(label);
        visited.add(label);
        atLoopingHandler |= atLoops && !visited.containsAll(protectedEnds.getOrDefault(label, Set.of()));
        if (!hasFrames) {
            checkHandler();
        }
    }

    /** The check of a handler comes after its frame, which has to be at the handler's address. */
    @Override
    public void visitFrame(int type, int numLocal, Object[] local, int numStack, Object[] stack) {
        super.visitFrame(type, numLocal, local, numStack, stack);
        checkHandler();
    }

    private void checkHandler() {
        if (atLoopingHandler) {
            check();
        }
        atLoopingHandler = false;
    }

    @Override
    public void visitMaxs(int maxStack, int maxLocals) {
        Label end = new Label();
        super.visitLabel(end);
        codeSize = end.getOffset();
        super.visitMaxs(maxStack, maxLocals);
    }

    @Override
    public void visitJumpInsn(int opcode, Label target) {
        checkBefore(target);
        super.visitJumpInsn(opcode, target);
    }

    @Override
    public void visitTableSwitchInsn(int min, int max, Label other, Label... labels) {
        checkBefore(other, labels);
        super.visitTableSwitchInsn(min, max, other, labels);
    }

    @Override
    public void visitLookupSwitchInsn(Label other, int[] keys, Label[] labels) {
        checkBefore(other, labels);
        super.visitLookupSwitchInsn(other, keys, labels);
    }

    private void checkBefore(Label target, Label... more) {
        boolean backwards = visited.contains(target);
        for (Label label : more) {
            backwards |= visited.contains(label);
        }
        if (backwards && atLoops) {
            check();
        }
    }
}
