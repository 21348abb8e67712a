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
 * Visitor that inserts code, a check or a tag, at the entry of a method, before each backward jump
 * and, if wanted, before returns. Every loop has an edge that jumps backwards or throws to a
 * handler further up, so every loop has a point.
 *
 * The inserted code takes no value from the operand stack, leaves none there, and is not the target
 * of a jump. So stack map frames stay valid, and no class has to be looked up to compute them.
 */
final class PointInserter extends MethodVisitor {
    /** Kinds of points that a method gets. */
    static final class Where {
        boolean entry;
        boolean exits;
        boolean loops;
        /**
         * Whether the method is a constructor, whose entry is after super() or this() has returned.
         */
        boolean isConstructor;
        /** Whether the class file has stack map frames: from version 50 on. */
        boolean hasFrames;
    }

    private final Insertion insertion;
    private final String method;
    private final Where where;
    /** Labels visited so far, each with its line; 0 if unknown. */
    private final Map<Label, Integer> visited = new HashMap<>();
    /** Ends of the code ranges that each exception handler protects. */
    private final Map<Label, Set<Label>> protectedEnds = new HashMap<>();
    private Label loopingHandler;
    private int line;
    private int pendingNews;
    private boolean entered;
    private int sites;
    private int inserted;
    private int codeSize;

    /** Creates an inserter; {@code method} is the method's name in points. */
    PointInserter(MethodVisitor next, Insertion insertion, String method, Where where) {
        super(ASM9, next);
        this.insertion = insertion;
        this.method = method;
        this.where = where;
    }

    /** Returns the number of places in the method at which code was inserted so far. */
    int sites() {
        return sites;
    }

    /**
     * Returns the bytes of the method's code, insertions included; valid after the method was
     * visited.
     */
    int codeSize() {
        return codeSize;
    }

    /** Returns the bytes of the method's original code. */
    int codeSizeBefore() {
        return codeSize - inserted;
    }

    @Override
    public void visitCode() {
        super.visitCode();
        if (!where.isConstructor) {
            enter();
        }
    }

    private void enter() {
        if (!entered && where.entry) {
            insert(Point.method(method));
        }
        entered = true;
    }

    private void insert(Point point) {
        Label begin = new Label();
        Label end = new Label();
        super.visitLabel(begin);
        insertion.insert(mv, point);
        super.visitLabel(end);
        inserted += end.getOffset() - begin.getOffset();
        sites++;
    }

    private void insertTurn(Label head) {
        insert(Point.loop(method, visited.getOrDefault(head, 0)));
    }

    @Override
    public void visitTypeInsn(int opcode, String type) {
        super.visitTypeInsn(opcode, type);
        if (opcode == NEW) {
            pendingNews++;
        }
    }

    @Override
    public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
        super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
        if (opcode == INVOKESPECIAL && name.equals("<init>") && pendingNews-- == 0) {
            enter();
        }
    }

    @Override
    public void visitInsn(int opcode) {
        if (where.exits && opcode >= IRETURN && opcode <= RETURN) {
            insert(Point.method(method));
        }
        super.visitInsn(opcode);
    }

    @Override
    public void visitTryCatchBlock(Label start, Label end, Label handler, String type) {
        super.visitTryCatchBlock(start, end, handler, type);
        protectedEnds.computeIfAbsent(handler, h -> new HashSet<>()).add(end);
    }

    @Override
    public void visitLabel(Label label) {
        super.visitLabel(label);
        visited.put(label, line);
        if (where.loops && !visited.keySet().containsAll(protectedEnds.getOrDefault(label, Set.of()))) {
            loopingHandler = label;
        }
        if (!where.hasFrames) {
            insertAtHandler();
        }
    }

    /** Notes the line of a label that was visited just before. */
    @Override
    public void visitLineNumber(int number, Label start) {
        super.visitLineNumber(number, start);
        line = number;
        visited.put(start, number);
    }

    /**
     * Inserts the point of an exception handler after the handler's frame, which has to be at the
     * handler's address.
     */
    @Override
    public void visitFrame(int type, int numLocal, Object[] local, int numStack, Object[] stack) {
        super.visitFrame(type, numLocal, local, numStack, stack);
        insertAtHandler();
    }

    private void insertAtHandler() {
        if (loopingHandler != null) {
            insertTurn(loopingHandler);
        }
        loopingHandler = null;
    }

    @Override
    public void visitMaxs(int maxStack, int maxLocals) {
        Label end = new Label();
        super.visitLabel(end);
        codeSize = end.getOffset();
        super.visitMaxs(maxStack + (sites > 0 ? insertion.stackSlots() : 0), maxLocals);
    }

    @Override
    public void visitJumpInsn(int opcode, Label target) {
        insertBefore(target);
        super.visitJumpInsn(opcode, target);
    }

    @Override
    public void visitTableSwitchInsn(int min, int max, Label other, Label... labels) {
        insertBefore(other, labels);
        super.visitTableSwitchInsn(min, max, other, labels);
    }

    @Override
    public void visitLookupSwitchInsn(Label other, int[] keys, Label[] labels) {
        insertBefore(other, labels);
        super.visitLookupSwitchInsn(other, keys, labels);
    }

    /** Inserts one point before a jump if any of its targets is backwards. */
    private void insertBefore(Label target, Label... more) {
        Label head = visited.containsKey(target) ? target : null;
        for (Label label : more) {
            head = head == null && visited.containsKey(label) ? label : head;
        }
        if (head != null && where.loops) {
            insertTurn(head);
        }
    }
}
